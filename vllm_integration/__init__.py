"""All that knows vLLM: targets, the adapter, the worker process, the gate and its command."""
