"""The ``green`` command."""


def main() -> None:
    """Entry point of the console script."""
    raise SystemExit(0)
