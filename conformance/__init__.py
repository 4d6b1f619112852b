"""Real code against the spec: subjects, configurations, exploration, findings, the ledger.

Nothing here knows vLLM or Z3, so the same checks run on the reference, on a deliberately
broken reference and, inside a target's own interpreter, on vLLM.
"""
