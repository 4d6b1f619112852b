"""What releases of vLLM differ in, as named parameters of the spec: policies and their ranges."""
