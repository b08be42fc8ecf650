"""One replica: vLLM's scheduler, its paged KV cache, and the clock of its steps."""
