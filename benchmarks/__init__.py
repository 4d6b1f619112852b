"""Benchmarks: the reference manager beside vLLM's own, in one process. Nothing imports them."""
