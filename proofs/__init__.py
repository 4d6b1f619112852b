"""Theorems over `spec`, for all block sizes, windows, alignments and positions.

Read in this order: `interpretation` (the spec's terms as Z3 sees them), `obligation` (what is
to be proved), `lemmas` (the facts on products that proofs assume), `cases` (any group of each
kind), `theorems` (one for each claim of the spec), with `scans` (the reference's lookup finds the
longest valid hit), `joint` (so do several groups together), `retention` and `policies` (what
releases differ in), `sharing` (what a hit reuses is determined by it) and `pool` (the block pool
keeps what must hold of each block), `second_solver` (the same in SMT-LIB, and what cvc5 says) and
`prover` (runs them).
"""
