"""Adapter: vLLM's classes of any release as subjects."""
