"""Joules: meters, the step model, and their attribution to requests."""
