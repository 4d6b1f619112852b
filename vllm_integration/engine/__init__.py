"""A real engine of vLLM on the CPU, with tiny models: its numbers, and the shadow in it.

Read in this order: `environment` (where an engine runs), `models` and `workload` (what it runs),
`weights` and `planting` (what is put into it), `numbers` (how outputs are compared), `process` (the
engine's own process), `running` (its parent), `report`, and `suite` (what ``make engine`` runs).
"""
