"""The smallest manager that satisfies the spec and behaves, step by step, like vLLM's.

Read in this order: `scan` (which block a lookup asks about next), `lookup` (in one group), `joint`
and `spec_groups` (in several groups); `hashing` and `request`; `free_queue`, `pool` and `events`;
`policies` and `registration` (what the producer registers); `configuration`, `groups`,
`coordinator` and `manager`, which use vLLM's names with vLLM's meanings.
"""
