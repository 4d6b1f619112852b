"""Benchmarks: the reference manager and vLLM's own, in one process. Nothing imports them."""
