"""vLLM's classes as subjects, whatever their release."""
