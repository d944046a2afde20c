"""vLLM rules by release, read from its source."""
