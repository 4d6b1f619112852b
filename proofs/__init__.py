"""Theorems over `spec`, for all block sizes, windows, alignments and positions.

Read in this order: `interpretation` (the spec's terms as Z3 sees them), `obligation` (what is
to be proved), `lemmas` (the facts on products that proofs assume), `theorems` (one for each
claim of the spec), `scans` (that the reference's lookup finds the longest valid hit), `joint`
(the same for several groups) and `prover` (runs them).
"""
