"""Layouts: several KV cache groups at once, as the coordinator looks them up.

Coverage of the grid: each pair of different groups from a list that has every kind, two block
sizes and two windows, each group alone, and a few layouts of two to four groups; each with EAGLE
off, with EAGLE on and no group flagged, and with each single group flagged. A few have several MTP
modules, of which the last looks further ahead than a block of some group. The layouts of real
models are added to the grid with their own sizes, except that windows and chunks of more than
sixteen blocks are cut to eight. Every layout is one that a vLLM engine can have (`is_possible`).
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, total_ordering
from itertools import combinations, count
from typing import Any
from zlib import crc32

from hitproof.conformance.picking import picked
from hitproof.conformance.scope.configurations import Configuration, LookedUp, has_possible_chunks
from hitproof.conformance.scope.models import MODELS, Model, cut
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import in_blocks, kinds_of
from hitproof.spec.attention import tail_blocks
from hitproof.spec.groups import Group, GroupKind, alignment, geometry, share_eagle
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon

_CHUNK, _UMBP = "blocks_per_chunk", "beside_umbp"
OFFLOADING, UMBP = "offloading", "umbp"
"""Tiers with layouts of their own; the Mooncake store is judged on those of the prefix cache."""


@total_ordering
@dataclass(frozen=True)
class Layout:
    """The KV cache groups of an engine. Smaller cases sort first.

    Attributes:
        groups: as the planner lays them out, EAGLE-flagged where a draft layer is in the group.
        num_tokens: the bound: tokens of the longest request considered.
        use_eagle: whether the engine drafts with EAGLE or MTP.
        hash_block_size: tokens that one block hash covers; divides every block size.
        model: the real model whose layout this is, or "" in the grid.
        variant: see `conformance.scope.configurations.Configuration`.
        blocks_per_chunk: blocks that an offloading tier keeps together; 0 where none is judged.
            What is looked up are chunks then, each of which counts as a block, and each group is
            looked up by itself: groups that are alike need not drop a block alike, and with no
            group flagged none does.
        beside_umbp: whether UMBP is judged, and nothing else.
    """

    groups: tuple[Group, ...]
    num_tokens: int
    use_eagle: bool
    hash_block_size: int
    model: str = field(default="", compare=False)
    variant: int = field(default=0, compare=False)
    blocks_per_chunk: int = 0
    beside_umbp: bool = False

    def __lt__(self, other: "Layout") -> bool:
        return self._size < other._size

    @property
    def _size(self) -> tuple[Any, ...]:
        sizes = sum(group.block_size + (group.window or 0) for group in self.groups)
        kept = self.blocks_per_chunk, self.beside_umbp
        return len(self.groups), kept, self.num_tokens, sizes, self.groups, self.use_eagle

    @property
    def tier(self) -> str:
        """The tier that is judged there and nothing else, `OFFLOADING` or `UMBP`; else ""."""
        return UMBP if self.beside_umbp else OFFLOADING if self.blocks_per_chunk else ""

    @property
    def bound_in_words(self) -> str:
        """The bound, as shown in obligations."""
        return f"{self.num_tokens} tokens"

    @cached_property
    def shared(self) -> tuple[Group, ...]:
        """The groups as lookup treats them: see `spec.groups.share_eagle`."""
        if not self.blocks_per_chunk:
            return share_eagle(self.groups, self.use_eagle)
        return tuple(
            replace(group, block_size=group.block_size * self.blocks_per_chunk)
            for group in self.groups
        )

    @cached_property
    def in_blocks(self) -> "Layout":
        """The same without chunks."""
        return replace(self, blocks_per_chunk=0, beside_umbp=False)

    @property
    def prefill_lookahead(self) -> int:
        """How many tokens past its own an entry of the draft layers depends on."""
        return max(group.prefill_lookahead for group in self.groups)

    @cached_property
    def alignment(self) -> int:
        """A in tokens."""
        return alignment(self.shared)

    @cached_property
    def looked_up(self) -> tuple[LookedUp, ...]:
        """The sets of groups that are looked up together, in the order of the layout."""
        members: dict[Group, list[int]] = {}
        for group_id, group in enumerate(self.shared):
            if group.prefix_cacheable:
                members.setdefault(group, []).append(group_id)
        return tuple(
            LookedUp(tuple(ids), group, geometry(group, self.alignment))
            for group, ids in members.items()
        )

    def reach(self, max_length: int, policy: LookaheadHorizon) -> tuple[int, int]:
        """Cap and lookahead horizon, in tokens, of a request of ``max_length`` + 1 tokens."""
        num_tokens = max_length + 1
        hashed = num_tokens // self.hash_block_size * self.hash_block_size
        alone = len(self.groups) == 1 and not self.blocks_per_chunk
        limit = horizon(LookaheadHorizon.CAPPED if alone else policy, num_tokens)
        return max_length, min(limit, hashed)

    @property
    def max_lengths(self) -> list[int]:
        """How many tokens the lookups may serve: all but the last of each request's.

        In the grid, requests of every length down to one token; for a real model, those that end
        on the last boundary, one token past it, and one block past it; of chunks, those that end on
        a boundary or the smallest chunk after it, and one token past these.
        """
        if self.tier:
            least = min(each.group.block_size for each in self.looked_up)
            ends = range(self.alignment, self.num_tokens + 1, self.alignment)
            lengths = {end + more for end in ends for more in (0, 1, least, least + 1)}
            return sorted(length - 1 for length in lengths if length <= self.num_tokens)
        if not self.model:
            return list(range(self.num_tokens))
        size = max(group.block_size for group in self.groups)
        last = self.num_tokens // self.alignment * self.alignment
        return sorted({min(last + more, self.num_tokens) - 1 for more in (0, 1, size)})

    @property
    def kinds(self) -> str:
        """The kinds of its groups."""
        return kinds_of(lookup.group for lookup in self.looked_up)

    @property
    def drops_block(self) -> bool:
        """Whether some group matches and drops a lookahead block."""
        return any(lookup.shape.lookahead for lookup in self.looked_up)

    @property
    def lookahead_tokens(self) -> int:
        """The longest lookahead block of its groups; 0 where none drops a block."""
        return max(int(each.shape.lookahead) * each.group.block_size for each in self.looked_up)

    def bound(self, looked_up: LookedUp) -> int:
        """The bound in blocks of one set of groups."""
        return self.num_tokens // looked_up.group.block_size

    def describe(self) -> str:
        """The layout in words, as shown in findings and obligations."""
        groups = "; ".join(
            f"{number}: {_words(group, self.use_eagle)}" for number, group in enumerate(self.groups)
        )
        chunk = self.blocks_per_chunk
        return (
            f"{self.model + ': ' if self.model else ''}groups {groups}; alignment "
            f"{self.alignment}, EAGLE {'on' if self.use_eagle else 'off'}"
            f"{f', offloaded in chunks of {in_blocks(chunk)}' if chunk else ''}"
            f"{', beside UMBP' if self.beside_umbp else ''}"
        )

    def as_json(self) -> dict[str, Any]:
        """The layout as JSON; `from_json` reads it."""
        return {
            "groups": [
                picked(group, *_OF_GROUP, *["prefill_lookahead"] * (group.prefill_lookahead > 1))
                for group in self.groups
            ],
            **picked(self, "num_tokens", "use_eagle", "hash_block_size", "model"),
            **({"variant": self.variant} if self.variant else {}),
            **({_CHUNK: self.blocks_per_chunk} if self.blocks_per_chunk else {}),
            **({_UMBP: True} if self.beside_umbp else {}),
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Layout":
        """Inverse of `as_json`; raises KeyError, ValueError or TypeError on anything else."""
        return Layout(
            groups=tuple(
                Group(
                    kind=GroupKind(group["kind"]),
                    block_size=group["block_size"],
                    window=group.get("window"),
                    eagle=group.get("eagle", False),
                    chunk=group.get("chunk"),
                    prefix_cacheable=group.get("prefix_cacheable", True),
                    prefill_lookahead=group.get("prefill_lookahead", 1),
                )
                for group in data["groups"]
            ),
            num_tokens=data["num_tokens"],
            use_eagle=data["use_eagle"],
            hash_block_size=data["hash_block_size"],
            model=data["model"],
            variant=data.get("variant", 0),
            blocks_per_chunk=data.get(_CHUNK, 0),
            beside_umbp=data.get(_UMBP, False),
        )


_OF_GROUP = "kind", "block_size", "window", "chunk", "eagle", "prefix_cacheable"


def judged_from_json(data: dict[str, Any]) -> Configuration | Layout:
    """The configuration or layout in ``data``."""
    return Layout.from_json(data) if "groups" in data else Configuration.from_json(data)


def _words(group: Group, use_eagle: bool) -> str:
    window = "" if group.window is None else f" window {group.window}"
    chunk = "" if group.chunk is None else f" chunk {group.chunk}"
    flagged = " with draft layers" if group.eagle and use_eagle else ""
    if use_eagle and group.prefill_lookahead > 1:
        flagged += f" ({group.prefill_lookahead} MTP modules)"
    opted_out = "" if group.prefix_cacheable else " not prefix-cached"
    kind = group.kind.replace("_", " ")
    return f"{kind}, block size {group.block_size}{window}{chunk}{flagged}{opted_out}"


def is_possible(layout: Layout) -> bool:
    """Whether a vLLM engine can have it; see `conformance.scope.configurations.is_possible`.

    Draft layers are attention layers, so no Mamba group is flagged; nor is any without EAGLE.
    """
    drafting = [group.kind for group in layout.groups if group.eagle]
    return (
        GroupKind.MAMBA not in drafting
        and (layout.use_eagle or not drafting)
        and all(has_possible_chunks(each.group, layout.alignment) for each in layout.looked_up)
    )


def without_flags(layout: Layout) -> Layout:
    """The layout with no group flagged, so that all drop a block (`spec.groups.share_eagle`)."""
    return replace(layout, groups=tuple(replace(group, eagle=False) for group in layout.groups))


def _full(block_size: int) -> Group:
    return Group(GroupKind.FULL_ATTENTION, block_size)


def _sliding(block_size: int, window: int) -> Group:
    return Group(GroupKind.SLIDING_WINDOW, block_size, window)


def _chunked(block_size: int, chunk: int) -> Group:
    return Group(GroupKind.CHUNKED_LOCAL, block_size, chunk=chunk)


def _mamba(block_size: int) -> Group:
    return Group(GroupKind.MAMBA, block_size)


_PAIRED = (
    _full(1),
    _full(2),
    _sliding(1, 2),
    _sliding(1, 3),
    _sliding(2, 3),
    _chunked(1, 2),
    _mamba(1),
    _mamba(2),
)

_MORE = (
    (_full(2), _sliding(1, 4)),
    (_full(3), _sliding(1, 4)),
    (_full(1), _sliding(1, 2), _sliding(1, 3)),
    (_full(2), _sliding(1, 2), _sliding(2, 4)),
    (_sliding(1, 2), _sliding(1, 3), _sliding(1, 4)),
    (_full(1), _sliding(1, 2), _mamba(1)),
    (_full(2), _sliding(1, 3), _mamba(2)),
    (_full(1), _full(1), _sliding(1, 2), _sliding(1, 2)),
    (_full(1), _sliding(1, 2), replace(_sliding(1, 3), prefix_cacheable=False)),
    (_full(1), replace(_sliding(1, 3), prefix_cacheable=False), _sliding(1, 2)),
)

_SEVERAL_MODULES = ((_full(2), _sliding(1, 2)), (_full(2), _sliding(2, 3)))
"""With two MTP modules, which look two tokens ahead: one block of full attention, and up to two of
a window."""


def _flagged(groups: tuple[Group, ...]) -> Iterator[tuple[tuple[Group, ...], bool]]:
    """The groups with every EAGLE setting: off, on with no flag, on with one flag."""
    yield groups, False
    yield groups, True
    for flagged in range(len(groups)):
        yield tuple(replace(g, eagle=n == flagged) for n, g in enumerate(groups)), True


def hash_unit(groups: Sequence[Group]) -> int:
    """The tokens that one block hash covers by vLLM's default."""
    return math.gcd(*(group.block_size for group in groups if group.prefix_cacheable))


_NUM_TOKENS = {
    Profile.QUICK: (4, 4, 4, 3, 0),
    Profile.DEFAULT: (8, 8, 6, 5, 0),
    Profile.THOROUGH: (16, 10, 10, 7, 6),
}
"""Tokens of the requests: of one group, of two with full attention and without, where more states
are reached, of the longer list, and of any three."""


def grid(profile: Profile) -> Iterator[Layout]:
    """The grid of layouts."""
    alone, pairs, unlike, more, triples = _NUM_TOKENS[profile]
    whole = _PAIRED[:2]
    for several, num_tokens in (
        (((group,) for group in _PAIRED), alone),
        ((pair for pair in combinations(_PAIRED, 2) if pair[0] in whole), pairs),
        ((pair for pair in combinations(_PAIRED, 2) if pair[0] not in whole), unlike),
        (_MORE, more),
        (combinations(_PAIRED, 3) if triples else (), triples),
    ):
        for unflagged in several:
            for groups, use_eagle in _flagged(tuple(unflagged)):
                layout = Layout(groups, num_tokens, use_eagle, hash_unit(groups))
                if is_possible(layout):
                    yield layout
    for plain in _SEVERAL_MODULES:
        looking = tuple(replace(group, prefill_lookahead=2) for group in plain)
        for groups, use_eagle in _flagged(looking):
            if use_eagle:
                yield Layout(groups, pairs, use_eagle, hash_unit(groups))


_HASH_UNITS = ((_full(1), _sliding(2, 3), _mamba(2)), (_full(2), _mamba(4)))
"""Mamba blocks larger than hash units, where hits end at whole blocks all the same, for the sake of
a window whose blocks are larger, too; and where they end inside blocks, at units of two tokens."""


def _of_hash_units(profile: Profile) -> Iterator[Layout]:
    """Layouts in which the size of hash units decides."""
    num_tokens = _NUM_TOKENS[profile][3]
    for plain in _HASH_UNITS:
        for groups, use_eagle in _flagged(plain):
            layout = Layout(groups, num_tokens + 1, use_eagle, hash_unit(groups))
            if is_possible(layout):
                yield layout


_TWO_MODULES = replace(_full(4), prefill_lookahead=2), replace(_sliding(2, 4), prefill_lookahead=2)
_OFFLOADED = {
    Profile.QUICK: (
        (1, 8, (_full(2),)),
        (2, 16, (_full(2),)),
        (1, 20, (_full(8), _sliding(2, 4))),
        (2, 20, (_full(4), _sliding(1, 4))),
        (1, 16, (_full(4), _mamba(4))),
    ),
    Profile.DEFAULT: (
        (1, 16, (_full(4), _sliding(2, 3))),
        (1, 16, (_full(4), _sliding(2, 4))),
        (1, 16, (_full(2), _sliding(4, 4))),
        (1, 16, (_full(2), _full(4))),
        (1, 8, (_sliding(2, 2), _sliding(2, 4))),
        (1, 8, (_full(2), _sliding(2, 6), _mamba(2))),
        (1, 8, (_full(2), _sliding(2, 4), _full(2))),
        (1, 8, (_full(2), _chunked(2, 4))),
        (1, 16, _TWO_MODULES),
        (2, 32, (_full(4), _mamba(4))),
        (2, 24, (_full(2), _sliding(2, 6), _full(4))),
        (4, 16, (_full(1), _sliding(1, 6))),
    ),
}
"""Layouts whose blocks are offloaded, with the blocks of a chunk and the bound in tokens.

Blocks of 1 token and windows of whole chunks and one token more are few: there a lookup of vLLM
asks for a chunk more than attention reads (BUGS), which would show everywhere.
"""


def offloaded(profile: Profile) -> Iterator[Layout]:
    """Layouts whose blocks a tier of chunks keeps, which nothing else is judged on.

    With EAGLE as in the grid; in about half of those of several groups full attention comes last.
    """
    listed = _OFFLOADED[Profile.QUICK]
    if profile is not Profile.QUICK:
        listed += _OFFLOADED[Profile.DEFAULT]
    for chunk, tokens, plain in listed:
        for groups, use_eagle in _flagged(plain):
            several = max(group.prefill_lookahead for group in groups) > 1
            cut_short = use_eagle and any(group.chunk for group in groups)
            flagged = any(group.eagle for group in groups)
            if cut_short or (several and not flagged):
                continue  # vLLM has no such engine, or nothing new to judge there
            layout = Layout(groups, tokens, use_eagle, hash_unit(groups), blocks_per_chunk=chunk)
            if is_possible(layout):
                yield _in_some_order(layout)


_BESIDE_UMBP = (
    (6, (_full(1),)),
    (8, (_sliding(2, 3),)),
    (8, (_full(2), _sliding(2, 3))),
    (5, (_full(4), _sliding(1, 2))),
    (6, (_full(2), _sliding(1, 3))),
    (6, (_full(1), _sliding(2, 3), _mamba(2))),
)
_MORE_BESIDE_UMBP = (
    (8, (_full(4), replace(_sliding(2, 4), prefix_cacheable=False), _sliding(2, 4))),
    (12, _TWO_MODULES),
)
"""Layouts of an engine beside UMBP, with the bound in tokens."""


def beside_umbp(profile: Profile) -> Iterator[Layout]:
    """Layouts beside UMBP, with EAGLE as in the grid, and but for the quick profile a small grid.

    UMBP asks for all blocks of a request at once, so that each set of them is a run of its own. It
    does not start with draft layers that opt out.
    """
    quick = profile is Profile.QUICK
    for tokens, plain in _BESIDE_UMBP if quick else _BESIDE_UMBP + _MORE_BESIDE_UMBP:
        for groups, use_eagle in _flagged(plain):
            drafting = any(group.eagle for group in groups if not group.prefix_cacheable)
            several = max(group.prefill_lookahead for group in groups) > 1 and not use_eagle
            layout = Layout(groups, tokens, use_eagle, hash_unit(groups), beside_umbp=True)
            if is_possible(layout) and not drafting and not several:
                yield layout
    for layout in () if quick else grid(Profile.QUICK):
        if all(group.prefix_cacheable for group in layout.groups):
            yield replace(layout, beside_umbp=True)


def of_tiers(profile: Profile) -> Iterator[Layout]:
    """The layouts on which nothing but a tier is judged."""
    yield from offloaded(profile)
    yield from beside_umbp(profile)


_LONGEST_RUN = 8
"""Blocks that windows and chunks of real models are cut to, so that all states can be covered."""


def of_model(model: Model, use_eagle: bool) -> Layout:
    """The layout of a real model, for requests just past one whole required run and a segment."""
    groups = tuple(replace(group, eagle=group.eagle and use_eagle) for group in model.groups)
    align = alignment(groups)
    needs = [tail_blocks(g.window, g.block_size) for g in groups if g.window is not None]
    too_long = max(needs, default=0) > 2 * _LONGEST_RUN or any(g.chunk for g in groups)
    if too_long:
        groups = tuple(cut(group, _LONGEST_RUN) for group in groups)
    need = max(group.window or group.chunk or 0 for group in groups)
    name = model.name + (" with shorter runs" if too_long else "")
    return Layout(
        groups,
        (need // align + 2) * align,
        use_eagle,
        model.hash_block_size,
        f"{name}{' + EAGLE' if use_eagle else ''}",
    )


def _in_some_order(layout: Layout) -> Layout:
    """The layout, or with its groups in reverse: models decide which layers come first.

    Which of the two is as good as a throw of dice.
    """
    turns = crc32(json.dumps(layout.as_json()).encode()) % 2
    return replace(layout, groups=layout.groups[::-1]) if turns else layout


def layouts(profile: Profile) -> tuple[Layout, ...]:
    """Every layout of a profile: the grid, the real models with and without EAGLE, and more.

    Those with EAGLE are of different variants, and so are those without. About half of those that
    are no model's have full attention after the other groups.
    """
    models = (of_model(model, use_eagle) for model in MODELS for use_eagle in (False, True))
    made = map(_in_some_order, (*grid(profile), *_of_hash_units(profile)))
    found = dict.fromkeys((*made, *filter(is_possible, models)))
    numbers = {False: count(), True: count()}
    return tuple(replace(each, variant=next(numbers[each.use_eagle])) for each in found)
