"""Public test doubles for greenserve and for adapters built on it."""
