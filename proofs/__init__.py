"""Theorems over `spec`, for all block sizes, windows, alignments and positions.

Read in this order: `interpretation` (the spec's terms as Z3 sees them), `obligation` (what is to
be proved), `lemmas` (the facts on products that proofs assume), `cases` (any group of each kind),
`attention`, `need`, `lookup`, `joint`, `masks`, `retention`, `policies`, `sharing` and `pool` (the
obligations of each claim), `dropping` (which groups drop a block), `scans` (the reference's
lookup finds the longest valid hit), `boundaries` (in tokens and in blocks), `promises` (of
retention) and `histories` (of requests), `theorems` (one for each claim of the spec),
`second_solver` (the same in SMT-LIB, and what cvc5 says) and `prover` (runs them). `errors` has
what they raise, for callers that load no solver.
"""
