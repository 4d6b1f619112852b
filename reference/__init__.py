"""The smallest implementation that satisfies the spec. So far: the lookup of one group."""
