"""Producer and consumer agree, end to end: one theorem for each retention mode.

*Dense caching* is the yardstick: the same history, with every computed block registered. Of any
number of groups, of any kinds and sizes, each theorem is about one *later request* and its hits,
after any history: steps that register what a chunk of some request computed, or evict. What a step
computes, registers and evicts are any sets of blocks, so each partition of a request is among them,
and each eviction of whole required runs.

A block is named by its group and its place in the later request. A block of another request with
the same key (vLLM's ``BlockHashWithGroupId``) is the same block; one with another key is none that
the later request could hit. ``cached`` and ``dense`` are the blocks in the two caches, ``computed``
and ``evicted`` those of a step, ``kept`` those that the producer registers of what is computed,
``owed`` those that it registers of any request, ``run`` those that a promised hit requires.

`group` is about the blocks of one group, `history` and `promise` are inductions over the steps of
a history, `hits` is about valid hits of all groups, `lookups` about what lookup returns. Where an
obligation takes for granted what another one proves, the premise is built by the statement of that
one (`proofs.obligation.taken`).
"""
