"""greenserve for vLLM."""
