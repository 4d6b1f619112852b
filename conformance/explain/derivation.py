"""Derivation: whether the groups and block sizes of an engine serve the layers that it has.

The layers say what they need; how they are grouped, sized and aligned is the target's decision.
In one module, though long: the rules are read one after the other.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from hitproof.conformance.explain.reuse import CacheSetup
from hitproof.conformance.findings.rules import Rule
from hitproof.spec.attention import attends
from hitproof.spec.groups import Group, GroupKind


@dataclass(frozen=True)
class Layer:
    """What one layer needs.

    Attributes:
        needs: its kind, window and chunk, with the block size of its own.
        page_bytes: bytes of a block of that size.
        draft: whether it drafts; None where the target does not say.
        any_block: whether its block may have any size, as nothing is computed block by block.
        padding: bytes of that block that hold nothing.
        alignment: bytes that the distance of its blocks is a multiple of.
        whole_rows: whether a page is whole rows, one for each token, with nothing behind them.
    """

    needs: Group
    page_bytes: int
    draft: bool | None = None
    any_block: bool = False
    padding: int = 0
    alignment: int = 1
    whole_rows: bool = False


@dataclass(frozen=True)
class Place:
    """Where the pages of one layer are, in bytes: the first, and from one to the next."""

    offset: int
    stride: int
    page: int


@dataclass(frozen=True)
class Rank:
    """What one rank was given.

    Attributes:
        blocks: blocks of its pool.
        pool_bytes: bytes of it.
        available: bytes that were available.
        places: of its layers by name; empty where the target does not say.
        layers: the names of its own layers.
        ended: the exception that its allocation ends with; empty where it ends with none.
    """

    blocks: int
    pool_bytes: int
    available: int
    places: Mapping[str, Place]
    layers: frozenset[str] = frozenset()
    ended: str = ""


@dataclass(frozen=True)
class Derived:
    """What the target made of them.

    Attributes:
        setup: groups and block sizes.
        layers: the layers by name.
        members: the names of the layers of each group.
        pages: bytes that each group has for a block of one of its layers.
        pool_bytes: bytes of the whole pool.
        available: bytes that were available; None where the number of blocks was said instead.
        ranks: what each rank was given, where that was looked at.
        unit: tokens of a hash that were asked for, if any were.
        kept: for each group, how many tokens before the next one a request of `PROBED` tokens
            keeps while it runs; empty if not determined.
        again: tokens before the next one that draft layers compute again: one less than there are
            MTP modules.
    """

    setup: CacheSetup
    layers: Mapping[str, Layer]
    members: tuple[tuple[str, ...], ...]
    pages: tuple[int, ...]
    pool_bytes: int
    available: int | None = None
    ranks: tuple[Rank, ...] = ()
    unit: int | None = None
    kept: tuple[int, ...] = ()
    again: int = 0


PROBED = 100_003
"""Tokens of a request that is longer than windows are."""


@dataclass(frozen=True)
class Bound:
    """The most groups that layers may be in, or the most bytes that tokens take in these groups.

    Attributes:
        most: how many groups, or bytes.
        layers: the names of the layers.
        tokens: how many tokens take the bytes; 0 where groups are counted.
    """

    most: int
    layers: tuple[str, ...]
    tokens: int = 0


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a configuration breaks, and how.

    Attributes:
        rule: the rule.
        sentence: how it is broken.
        bound: what is exceeded, where that is a number.
    """

    rule: Rule
    sentence: str
    bound: Bound | None = None


_Case = str | tuple[str, Bound]
"""How a rule is broken, and the bound that is exceeded, where there is one."""


def broken_rules(derived: Derived) -> Iterator[BrokenRule]:
    """The rules that a configuration breaks, each with the first case of it."""
    for rule, cases in _RULES.items():
        case = next(cases(derived), None)
        if case is not None:
            sentence, bound = (case, None) if isinstance(case, str) else case
            yield BrokenRule(rule, sentence, bound)


def _layers(derived: Derived) -> Iterator[str]:
    places = Counter(name for members in derived.members for name in members)
    for name in derived.layers.keys() | places.keys():
        if name not in derived.layers:
            yield f"{name} is in a group, but no layer"
        elif places[name] != 1:
            yield f"{name} is in {places[name]} groups"


def _placed(derived: Derived) -> Iterator[tuple[int, Group, str, Layer]]:
    for index, members in enumerate(derived.members):
        for name in members:
            if name in derived.layers:
                yield index, derived.setup.groups[index], name, derived.layers[name]


def _reads(derived: Derived) -> Iterator[str]:
    for index, group, name, layer in _placed(derived):
        needs = layer.needs
        # Keeping all that comes before serves windows and chunks, too, beside layers that need it.
        serves = (
            group.kind is GroupKind.FULL_ATTENTION
            and needs.kind is not GroupKind.MAMBA
            and any(each.needs.kind is GroupKind.FULL_ATTENTION for each in derived.layers.values())
        )
        same = (group.kind, group.window, group.chunk) == (needs.kind, needs.window, needs.chunk)
        if needs.prefix_cacheable and not (same or serves):
            yield (
                f"{name} is a layer of {_words(needs)}, and group {index}, where it is, has "
                f"{_words(group)}"
            )


def _read_again(derived: Derived) -> Iterator[str]:
    for index, _, name, layer in _placed(derived) if derived.kept else ():
        needs = layer.needs
        if not needs.prefix_cacheable:
            continue
        # A state is of what came before, however often it is computed.
        state = needs.kind is GroupKind.MAMBA
        query = PROBED - (derived.again if layer.draft and not state else 0)
        lost = PROBED - derived.kept[index] - 1
        reads = lost == PROBED - 1 if state else attends(query, lost, needs.window, needs.chunk)
        if lost >= 0 and reads:
            yield (
                f"{name} is a layer of {_words(needs)}, and computes token {query} next; of "
                f"{PROBED} tokens group {index} keeps the last {derived.kept[index]}"
            )


def _words(group: Group) -> str:
    size = group.window or group.chunk
    return group.kind.replace("_", " ") + (f" of {size} tokens" if size else "")


def _pages(derived: Derived) -> Iterator[str]:
    for index, group, name, layer in _placed(derived):
        needed = _taken(layer, group)
        if _of_one_size(derived, index) and needed > derived.pages[index]:
            yield (
                f"a block of {group.block_size} tokens of {name} takes {needed} bytes, and a page "
                f"of group {index} has {derived.pages[index]}"
            )
        elif _of_one_size(derived, index) and layer.whole_rows and needed != derived.pages[index]:
            yield f"{name} needs pages of whole rows, and those of group {index} are padded"


def _pool(derived: Derived) -> Iterator[str]:
    blocks = derived.setup.num_blocks
    for index, members in enumerate(derived.members):
        needed = blocks * sum(
            min(derived.layers[name].page_bytes, derived.pages[index])
            for name in members
            if name in derived.layers
        )
        if needed > derived.pool_bytes:
            yield f"{blocks} blocks of group {index} take {needed} of {derived.pool_bytes} bytes"
    if derived.available is not None and derived.pool_bytes > derived.available:
        yield f"it takes {derived.pool_bytes} bytes, and there are {derived.available}"


def _sizes(derived: Derived) -> list[int]:
    groups = derived.setup.groups if derived.setup.caching else ()
    return [group.block_size for group in groups if group.prefix_cacheable]


def _scheduler_block(derived: Derived) -> Iterator[str]:
    sizes = _sizes(derived)
    aligned = math.lcm(*sizes)
    block = derived.setup.scheduler_block_size
    every = math.lcm(*(group.block_size for group in derived.setup.groups))
    if sizes and block not in (aligned, every):
        yield f"it has {block} tokens, and the groups' blocks have {sizes}"


def _hash_block(derived: Derived) -> Iterator[str]:
    for size in _sizes(derived):
        if size % derived.setup.hash_block_size:
            yield f"a block has {size} tokens, and a hash block {derived.setup.hash_block_size}"


def _hash_unit(derived: Derived) -> Iterator[str]:
    sizes, size = _sizes(derived), derived.setup.hash_block_size
    common = derived.unit or math.gcd(*sizes)
    if derived.ranks and sizes and size != common:
        yield f"it has {size} tokens, and should have {common}"
    if derived.ranks and derived.unit and sizes and len(derived.members) == 1 != size // sizes[0]:
        yield f"{derived.unit} tokens were asked for, and hits end at blocks of {sizes[0]} alone"


def _blocks(derived: Derived) -> Iterator[str]:
    if not derived.ranks:
        return
    for index, group, name, layer in _placed(derived):
        size, page = layer.needs.block_size, derived.pages[index]
        if layer.any_block and len(set(derived.pages)) > 1:
            continue  # pages lie side by side, and need not be of one size
        if layer.any_block:
            others = [g.block_size for _, g, _, each in _placed(derived) if not each.any_block]
            most = math.gcd(*others)
            fit = [
                each
                for each in range(1, most + 1)
                if most % each == 0 and layer.page_bytes * each <= page * size
            ]
            if group.block_size != max(fit, default=group.block_size):
                yield f"a block of {name} has {group.block_size} tokens, and {max(fit)} fit"
        elif group.block_size % size:
            yield f"a block of group {index} has {group.block_size} tokens, and {name} needs {size}"
        elif (
            layer.needs.kind is not GroupKind.MAMBA
            and page % layer.page_bytes == 0
            and not layer.padding
            and group.block_size * layer.page_bytes != page * size
            and _of_one_size(derived, index)
        ):
            yield f"a block of {group.block_size} tokens of {name} does not fill {page} bytes"


def _of_one_size(derived: Derived, index: int) -> bool:
    return len({_taken(layer, g) for of, g, _, layer in _placed(derived) if of == index}) == 1


def _page_size(derived: Derived) -> Iterator[str]:
    layers = derived.layers.values()
    per_token = [layer.page_bytes // layer.needs.block_size for layer in layers if layer.any_block]
    largest = max((layer.page_bytes for layer in layers if not layer.any_block), default=0)
    most = largest + max(per_token, default=0)
    widest = max(_widths(derived), default=0)
    for index, page in enumerate(derived.pages):
        # Where pages lie side by side in a block, the widest group decides how large it is.
        beside = len(set(derived.pages)) > 1 and not _widths(derived)[index]
        enough = max(most, widest) if beside else most
        if derived.ranks and largest and page > enough and _of_one_size(derived, index):
            yield f"a page of group {index} has {page} bytes, and no layer needs more than {enough}"


def _widths(derived: Derived) -> list[int]:
    """Bytes of a block of each group, without layers whose block may have any size."""
    widths = [0] * len(derived.members)
    for index, group, _, layer in _placed(derived):
        widths[index] += 0 if layer.any_block else _taken(layer, group)
    return widths


def _taken(layer: Layer, group: Group) -> int:
    """Bytes that a layer takes in a block of its group."""
    if layer.needs.kind is GroupKind.MAMBA:
        return layer.page_bytes
    if group.block_size == layer.needs.block_size:
        return layer.page_bytes
    return (layer.page_bytes - layer.padding) * group.block_size // layer.needs.block_size


def _apart(derived: Derived) -> Iterator[str]:
    for rank in derived.ranks:
        group = {name: i for i, names in enumerate(derived.members) for name in names}
        pages = sorted(
            (place.offset + block * place.stride, place.page, block, group.get(name, -1), name)
            for name, place in rank.places.items()
            for block in sorted({0, 1, rank.blocks - 1})
        )
        for number, (start, size, block, of, name) in enumerate(pages):
            if start < 0:
                yield f"block {block} of {name} starts before the pool"
            if start + size > rank.pool_bytes:
                yield f"block {block} of {name} ends at {start + size} of {rank.pool_bytes} bytes"
            for other, _, other_block, other_of, other_name in pages[number + 1 :]:
                if other >= start + size:
                    break
                if block != other_block or of == other_of:
                    yield f"block {block} of {name} and block {other_block} of {other_name} overlap"


def _aligned(derived: Derived) -> Iterator[str]:
    for rank in derived.ranks:
        for name, place in rank.places.items():
            needs = derived.layers[name].alignment if name in derived.layers else 1
            if place.stride % needs:
                yield f"blocks of {name} are {place.stride} bytes apart, no multiple of {needs}"


def _own_layers(derived: Derived) -> Iterator[str]:
    for number, rank in enumerate(derived.ranks):
        ends = f" ({rank.ended} when it allocates them)" if rank.ended else ""
        for name in sorted(rank.places.keys() - rank.layers) if rank.layers else ():
            yield f"rank {number} has pages for {name}, which is on another rank{ends}"
        if missing := sorted(rank.layers - rank.places.keys() if rank.places else ()):
            yield f"rank {number} has no pages for its own {missing[0]}"


def _ranks(derived: Derived) -> Iterator[str]:
    blocks = [rank.blocks for rank in derived.ranks]
    if len(set(blocks)) > 1:
        yield f"they have {blocks}"


def _memory(derived: Derived) -> Iterator[str]:
    left = [rank.available - rank.pool_bytes for rank in derived.ranks]
    block = [rank.pool_bytes // max(rank.blocks, 1) for rank in derived.ranks]
    if derived.ranks and all(a >= b > 0 for a, b in zip(left, block, strict=True)):
        yield f"{left} bytes are left, and a block takes {block}"


def _sorts(derived: Derived) -> Counter[tuple[Group, int]]:
    layers = [layer for layer in derived.layers.values() if not layer.any_block]
    return Counter((replace(layer.needs, eagle=False), layer.page_bytes) for layer in layers)


@dataclass(frozen=True)
class _Block:
    """A block of the one pool, which each group fills with its layers.

    Attributes:
        width: bytes of it.
        members: for each group, the bytes that each of its layers takes of it, its page included.
        alike: whether all pages are of one size.
    """

    width: int
    members: tuple[tuple[int, ...], ...]
    alike: bool


def _block(derived: Derived) -> _Block | None:
    """The block; None where there are several pools, or layers whose block may have any size."""
    if len(derived.ranks) != 1 or any(layer.any_block for layer in derived.layers.values()):
        return None
    alike = len(set(derived.pages)) == 1
    members: list[list[int]] = [[] for _ in derived.members]
    for index, group, _, layer in _placed(derived):
        members[index].append(derived.pages[index] if alike else _taken(layer, group))
    width = derived.ranks[0].pool_bytes // max(derived.setup.num_blocks, 1)
    return _Block(width, tuple(map(tuple, members)), alike)


def _padding(derived: Derived) -> Iterator[str]:
    block = _block(derived)
    if block is None or not block.alike:
        return
    taken = block.width * len(derived.members)
    used = sum(map(sum, block.members))
    # Two sorts can be grouped so that less than a third is padding.
    enough = taken * 2 < used * 3 if len(_sorts(derived)) == 2 else taken < used * 2
    if not enough and len(_sorts(derived)) > 1:
        yield f"its groups take {taken} bytes a block, and their layers {used}"


def _long_requests(derived: Derived) -> Iterator[_Case]:
    block = _block(derived)
    if block is None or block.width <= max(map(max, filter(None, block.members)), default=0):
        return
    groups = derived.setup.groups
    growing = [n for n, group in enumerate(groups) if group.kind is GroupKind.FULL_ATTENTION]
    tokens = math.lcm(*(groups[index].block_size for index in growing))
    taken = sum(block.width * tokens // groups[index].block_size for index in growing)
    used = sum(sum(block.members[index]) * tokens // groups[index].block_size for index in growing)
    # Two sorts with pages of one size can be grouped so that less than a third is padding.
    few = block.alike and len(_sorts(derived)) == 2
    most = (used * 3 - 1) // 2 if few else used * 2 - 1
    if taken > max(most, 0):
        layers = tuple(name for index in growing for name in derived.members[index])
        sentence = f"{tokens} tokens take {taken} bytes, and what is kept of them {used}"
        yield sentence, Bound(most, layers, tokens)


def _filled_blocks(derived: Derived) -> Iterator[_Case]:
    block = _block(derived)
    if block is None:
        return
    of_sort: dict[Layer, list[int]] = {}
    for index, members in enumerate(derived.members):
        sorts = {derived.layers[name] for name in members if name in derived.layers}
        if len(sorts) == 1:
            of_sort.setdefault(sorts.pop(), []).append(index)
    for layer, groups in of_sort.items():
        room = block.width // max(block.members[groups[0]])
        needed = -(-sum(len(block.members[index]) for index in groups) // max(room, 1))
        if len(groups) > needed:
            names = tuple(name for index in groups for name in derived.members[index])
            yield (
                f"layers of {_words(layer.needs)} are in {len(groups)} groups, and blocks of "
                f"{block.width} bytes have room for them in {needed}",
                Bound(needed, names),
            )


def _few_groups(derived: Derived) -> Iterator[_Case]:
    sorts = _sorts(derived)
    if not derived.ranks or not sorts:
        return
    alike = len(set(derived.pages)) == 1
    if not alike and all(sort.kind is not GroupKind.FULL_ATTENTION for sort, _ in sorts):
        return  # nothing grows with the request, and narrow blocks save memory
    pages = {sort: 1 if alike else sort[1] for sort in sorts}
    rarest = min(count * pages[sort] for sort, count in sorts.items())
    block = max(rarest, *pages.values())
    most = sum(-(-count // (block // pages[sort])) for sort, count in sorts.items())
    most += sum(layer.any_block for layer in derived.layers.values())
    if len(derived.members) > most:
        sentence = f"there are {len(derived.members)}, and {most} would do"
        yield sentence, Bound(most, tuple(derived.layers))


def _dealt(derived: Derived) -> Iterator[str]:
    """A rank's block is that of its widest group; each sort may be dealt evenly over its groups."""
    alike = len(set(derived.pages)) == 1
    taken: dict[tuple[int, Layer], int] = {}
    groups_of: dict[Layer, set[int]] = {}
    for index, group, _, layer in _placed(derived):
        page = derived.pages[index] if alike or layer.any_block else _taken(layer, group)
        taken[index, layer] = -(-page // layer.alignment) * layer.alignment
        groups_of.setdefault(layer, set()).add(index)
    for number, rank in enumerate(derived.ranks):
        has = Counter(layer for name, layer in derived.layers.items() if name in rank.layers)
        widths = [0] * len(derived.members)
        for (index, layer), page in taken.items():
            widths[index] += page * -(-has[layer] // len(groups_of[layer]))
        aligned = math.lcm(*(layer.alignment for layer in has))
        enough = -(-max(widths, default=0) // aligned) * aligned
        block = rank.pool_bytes // max(rank.blocks, 1)
        if has and block > enough:
            yield f"a block of rank {number} takes {block} bytes, and {enough} would do"


def _drafts(derived: Derived) -> Iterator[str]:
    if not derived.setup.use_eagle or any(each.draft is None for each in derived.layers.values()):
        return
    for index, members in enumerate(derived.members):
        drafting = [n for n in members if n in derived.layers and derived.layers[n].draft]
        flagged = derived.setup.groups[index].eagle
        if bool(drafting) != flagged:
            what = f"{drafting[0]} drafts" if drafting else "none of its layers drafts"
            yield f"group {index} is {'' if flagged else 'not '}flagged, and {what}"


_RULES: dict[Rule, Callable[[Derived], Iterator[_Case]]] = {
    Rule.LAYERS: _layers,
    Rule.READS: _reads,
    Rule.READ_AGAIN: _read_again,
    Rule.PAGES: _pages,
    Rule.POOL: _pool,
    Rule.SCHEDULER_BLOCK: _scheduler_block,
    Rule.HASH_BLOCK: _hash_block,
    Rule.HASH_UNIT: _hash_unit,
    Rule.DRAFTS: _drafts,
    Rule.BLOCKS: _blocks,
    Rule.PAGE_SIZE: _page_size,
    Rule.APART: _apart,
    Rule.ALIGNED: _aligned,
    Rule.OWN_LAYERS: _own_layers,
    Rule.RANKS: _ranks,
    Rule.MEMORY: _memory,
    Rule.PADDING: _padding,
    Rule.LONG_REQUESTS: _long_requests,
    Rule.FILLED_BLOCKS: _filled_blocks,
    Rule.FEW_GROUPS: _few_groups,
    Rule.DEALT: _dealt,
}
