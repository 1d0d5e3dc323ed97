"""Failing asserts of the contract show their values, as those of a test module do."""

import pytest

for module in ("holding", "decisions", "accounting"):
    pytest.register_assert_rewrite(f"green_core.testing.contract.{module}")
