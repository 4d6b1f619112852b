"""Fixes: patches to a release of vLLM, each of which removes a fault of BUGS."""
