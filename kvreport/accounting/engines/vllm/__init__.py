"""vLLM, by release: KV cache groups, kernels, load overhead and reserve."""
