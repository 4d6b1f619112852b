"""The smallest implementation that satisfies the spec. So far: the lookup of one group.

Read in this order: `scan` (which block a lookup asks about next) and `lookup`.
"""
