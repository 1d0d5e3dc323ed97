"""Policies: one pure class per file, found by entry point ``greenserve.policies``."""
