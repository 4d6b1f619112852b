"""Emulation: the reference as releases of vLLM behave, so that it can be compared with each."""
