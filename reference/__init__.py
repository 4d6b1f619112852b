"""The smallest manager that satisfies the spec and behaves, step by step, as vLLM's does.

Read in this order: `scan` (which block a lookup asks about next), `lookup` (of one group), `joint`
and `spec_groups` (of several); `hashing` and `request`; `free_queue`, `pool` and `events`;
`policies` and `registration` (what the producer registers); `configuration`, `groups`,
`coordinator` and `manager`, whose names and meanings are vLLM's.
"""
