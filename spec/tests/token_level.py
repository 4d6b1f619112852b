"""The spec once more, token by token: nothing here calls a clause of the spec.

Which tokens a query reads is written out as a set of positions; all else is counted from it.
"""

from collections.abc import Iterator, Sequence

from hitproof.spec.groups import Group, GroupKind

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
CHUNKED, MAMBA = GroupKind.CHUNKED_LOCAL, GroupKind.MAMBA


def read_by(query: int, window: int | None, chunk: int | None = None) -> set[int]:
    """The tokens that a query reads: all up to itself, or the last ``window`` of them.

    With a ``chunk``, those since the last position that its chunks start at.
    """
    positions = list(range(query + 1))
    if chunk is not None:
        start = max(position for position in positions if position % chunk == 0)
        return set(range(start, query + 1))
    return set(positions if window is None else positions[-window:])


def read_after(length: int, window: int | None, chunk: int | None = None) -> set[int]:
    """The tokens before ``length`` that some query from there on reads."""
    last_query = length + (window or chunk or 1)
    return {
        token
        for query in range(length, last_query + 1)
        for token in read_by(query, window, chunk)
        if token < length
    }


def lookahead_blocks(group: Group) -> int:
    """How many blocks past a hit are matched and dropped; Mamba states never are."""
    return 1 if group.eagle and group.kind is not MAMBA else 0


def needed_blocks(group: Group, length: int) -> set[int]:
    """The blocks that a hit of ``length`` > 0 tokens needs, the lookahead block included."""
    if group.kind is MAMBA:  # its state as of the hit's last token
        return {(length - 1) // group.block_size}
    tokens = read_after(length, group.window, group.chunk)
    blocks = {token // group.block_size for token in tokens}
    return blocks | ({length // group.block_size} if lookahead_blocks(group) else set())


def serves(
    groups: Sequence[Group],
    alignment: int,
    length: int,
    cap: int,
    horizon: int,
    cached: Sequence[set[int]],
) -> bool:
    """Whether a hit of ``length`` tokens may be served from these cached blocks."""
    if length == 0:
        return True
    return (
        length > 0
        and length % alignment == 0
        and length <= cap
        and all(
            needed_blocks(group, length) <= held
            and length + lookahead_blocks(group) * group.block_size <= horizon
            for group, held in zip(groups, cached, strict=True)
            if group.prefix_cacheable
        )
    )


def serves_finely(
    groups: Sequence[Group],
    hash_block: int,
    length: int,
    cap: int,
    horizon: int,
    entries: Sequence[set[int]],
) -> bool:
    """Whether a hit of ``length`` tokens may be served when it may end on any hash block.

    ``entries`` has for each group the lengths of the prefixes, in tokens, that its blocks were
    entered under.
    """
    if length == 0:
        return True
    if length % hash_block or not 0 < length <= cap:
        return False
    for group, entered in zip(groups, entries, strict=True):
        # Only for the lookahead block does a lookup peek past the cap.
        reach = horizon if group.eagle else cap
        seen = {prefix for prefix in entered if prefix <= reach}
        if group.kind is MAMBA:
            if length not in seen:
                return False
            continue
        read = read_after(length, group.window)
        if group.eagle:
            read.add(length)
        for token in read:
            end_of_block = (token // group.block_size + 1) * group.block_size
            if not seen & set(range(token + 1, end_of_block + 1)):
                return False
    return True


def reachable_blocks(group: Group, alignment: int, num_blocks: int) -> set[int]:
    """The blocks below ``num_blocks`` that a hit at some boundary needs."""
    reach = (group.window or 0) + (group.chunk or 0)
    far = num_blocks * group.block_size + reach + 2 * alignment
    return {
        block
        for length in range(alignment, far, alignment)
        for block in needed_blocks(group, length)
        if block < num_blocks
    }


def small_groups(largest_block: int = 3, largest_window: int = 7) -> Iterator[Group]:
    """Every group with a small block size and window or chunk, with and without EAGLE."""
    for block_size in range(1, largest_block + 1):
        for eagle in (False, True):
            yield Group(FULL, block_size, None, eagle)
            yield Group(MAMBA, block_size, None, eagle)
            for chunk in range(1, largest_window + 1, 2):
                yield Group(CHUNKED, block_size, None, eagle, chunk)
            for window in range(1, largest_window + 1):
                yield Group(SLIDING, block_size, window, eagle)


class Asked:
    """A cache that holds every block, and notes which ones it is asked about."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def __call__(self, block: int) -> bool:
        self.blocks.append(block)
        return True
