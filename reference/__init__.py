"""The smallest manager that satisfies the spec and behaves, step by step, like vLLM's.

Read in this order: `scan` (which block a lookup asks about next), `lookup` (in one group) and
`spec_groups` (in several); `request` (tokens and their hashes) and `pool`; `registration` (what the
producer registers), `groups` and `manager`, which use vLLM's names with vLLM's meanings.
"""
