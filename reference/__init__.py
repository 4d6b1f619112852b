"""The smallest implementation that satisfies the spec. So far: lookup.

Read in this order: `scan` (which block a lookup asks about next), `lookup` (of one group),
`fine` (for hits that end inside its blocks) and `joint` (of several groups).
"""
