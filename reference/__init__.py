"""The smallest implementation that satisfies the spec. So far: lookup.

Read in this order: `scan` (which block a lookup asks about next), `lookup` (of one group) and
`joint` (of several).
"""
