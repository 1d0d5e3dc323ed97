"""Watts: levers that set limits on devices, and the loop that lets a policy move them."""
