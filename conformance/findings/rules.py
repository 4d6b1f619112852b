"""The rules of what start-up derives from layers: `conformance.explain.derivation` has each."""

from enum import StrEnum


class Rule(StrEnum):
    """What a derived configuration must obey."""

    LAYERS = "every layer is in one group"
    READS = "a group keeps what its layers read"
    READ_AGAIN = "a running request keeps what its layers read, also of tokens they compute again"
    PAGES = "a page holds the block of its group"
    POOL = "the pool fits into the memory"
    SCHEDULER_BLOCK = "the scheduler's block is the least common multiple of the groups' blocks"
    HASH_BLOCK = "every block is a whole number of hash blocks"
    HASH_UNIT = "a hash covers what was asked for, or as much as all blocks have in common"
    DRAFTS = "the groups with draft layers are flagged"
    BLOCKS = "a block is whole blocks of its layers, and fills its page"
    PAGE_SIZE = "no page is larger than what the largest needs"
    APART = "no two blocks share bytes, except as the same block of two groups"
    ALIGNED = "blocks are as far apart as a multiple of what their layers need"
    OWN_LAYERS = "a rank has pages for its own layers, and for no others"
    RANKS = "all ranks have the same number of blocks"
    MEMORY = "the memory of some rank is used up"
    PADDING = "less than half of the pool is padding"
    LONG_REQUESTS = "less than half of what a long request takes is padding"
    FILLED_BLOCKS = "layers of one sort are in no more groups than blocks have room for"
    FEW_GROUPS = "there are no more groups than the rarest sort of layers makes"
    DEALT = "on each rank a block is no larger than layers need that are dealt out evenly"

    @property
    def parameter(self) -> str:
        """The rule as a parameter of a defect."""
        return self.name.lower().replace("_", "-")


WASTEFUL = (
    Rule.HASH_UNIT,
    Rule.OWN_LAYERS,
    Rule.PAGE_SIZE,
    Rule.MEMORY,
    Rule.PADDING,
    Rule.LONG_REQUESTS,
    Rule.FILLED_BLOCKS,
    Rule.FEW_GROUPS,
    Rule.DEALT,
)
"""Where these are broken outputs are right, and memory or time is lost."""
