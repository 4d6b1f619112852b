"""Producer and consumer agree, end to end: one theorem for each retention mode.

*Dense caching* is the yardstick: the same history, with every computed block registered. Each
theorem is an induction over a history: the start, each kind of step, that no step is the first to
break the invariant, and what follows for a later request. A step registers what a chunk of some
request computed, or evicts. Chunks and what is evicted are any sets of keys, so each partition of a
request is among them, and each eviction of whole required runs.

A *key* is a group and the content of one of its blocks (vLLM's ``BlockHashWithGroupId``). A hit is
valid when the keys of all required runs are cached, those of all groups. So a statement on sets of
keys is one on any number of groups: under dense retention `any_number_of_groups_agree` shows it of
the definition (`spec.hits.valid_hit`); of the other obligations it is an argument in words.
``cached`` and ``dense`` are the keys in the two caches,
``computed`` and ``evicted`` those of a step, ``kept`` those that the producer registers of what is
computed, ``required`` those of one hit of a later request. Where an obligation takes for granted
what another one proves, it names it (`Obligation.rests_on`), and both call the same function.

Keys are numbers from 0 to ``keys``. Boundaries of hits are in alignments, since groups have blocks
of different sizes; ``cap`` is the longest hit that lookup may serve.
"""
