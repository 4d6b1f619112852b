"""Numbers under the axioms: a small model that computes from the blocks which the spec names."""
