"""Real Python functions, proved for all inputs: symbolic execution of their own source.

`Machine` executes the source of an unmodified function on symbols, loops are cut at invariants
that `Loops` finds by their shape and checks, and what is shown at the end is a clause of the spec
on the same symbols. What lies outside the supported part of Python is `Unsupported`, never
guessed.
"""
