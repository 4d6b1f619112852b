"""hitproof: a formally checked specification of vLLM's prefix cache, and the gate that applies it.

The packages below are links to the folders at the top of the repository; the wheel has them inside.
"""
