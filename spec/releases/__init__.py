"""Where releases of vLLM differ: policies, as named parameters of the spec, and their releases."""
