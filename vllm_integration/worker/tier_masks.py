"""Masks of the Mooncake store's coordinator, proved for all sizes and lengths.

The coordinator has a single group, with boundaries at any distance: it makes the mask of each group
independently.
"""

from collections.abc import Iterator
from typing import Any

from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.failures import Predates
from hitproof.proofs.unbounded.masks import AnyMask, Retention, is_due
from hitproof.proofs.unbounded.proving import Conclusion, Statement
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Contract, Listing, Marks, Record
from hitproof.spec.groups import Group, GroupKind, geometry
from hitproof.vllm_integration.adapter.inspection import arguments, attribute, parameters_of
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.adapter.tiers import ENTRIES, coordinator, coordinator_class
from hitproof.vllm_integration.worker.settling import (
    Departure,
    Settling,
    Shown,
    Trial,
    combinations_of,
    limited,
    with_departures,
)

_ONE_BY_ONE = "_reachable_masks"


class TierMask(Settling):
    """What the store is given of a step that ends on a boundary, or is asked for.

    ``what`` is one of `adapter.tiers.ENTRIES`.
    """

    def __init__(self, subject: VllmSubject, what: str, kind: GroupKind, eagle: bool) -> None:
        self._parts, self._kind, self._eagle = subject.parts, kind, eagle
        self._class = coordinator_class(subject.parts)
        if not hasattr(self._class, _ONE_BY_ONE):
            raise Predates("the coordinator of the Mooncake store has no masks of later steps")
        self._what = what
        self._function = attribute(self._class, ENTRIES[what])
        # Before it took where a step starts, it was asked for the whole request.
        self._late = what == "stored" and "start_token" in parameters_of(self._function)
        self._manager = subject.parts.manager_class(kind)
        self.assumptions = combinations_of(f"mask {kind}{' eagle' if eagle else ''} dense")

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any step."""
        from vllm.v1.kv_cache_spec_registry import KVCacheSpecRegistry

        parts, late = self._parts, self._late
        any_ = AnyMask(here, self._kind, self._eagle, Retention.DENSE, whole=True, late=late)
        any_.due = with_departures(known, any_.siblings, any_.block, any_.boundary, any_.due)
        sizes = {
            "block_size": any_.block_size,
            "sliding_window": any_.window,
            "attention_chunk_size": any_.chunk,
        }
        fields = {name: size for name, size in sizes.items() if size is not None}
        if any_.window is not None:
            fields["extra_retained_tokens"] = 0
        spec = Record(type(parts.spec(limited(self._kind, 1, 2, self._eagle))), fields)
        group = Record(parts.interface.KVCacheGroupSpec, {"kv_cache_spec": spec})
        own = {
            "kv_cache_groups": Listing([group]),
            "lcm_block_size": any_.alignment,
            "enable_partial_hash_hits": False,
            "retention_interval": None,
            "eagle_group_ids": Marks([self._eagle]),
        }
        values = {
            "self": Record(self._class, own),
            "aligned_token_len": any_.end * any_.block_size,
            "start_token": any_.start * any_.block_size,
            "num_prompt_tokens": None,
        }
        registry: Any = KVCacheSpecRegistry.get_manager_class
        return Statement(
            self._function,
            arguments(self._function, values, self._function.__qualname__),
            (*any_.premises, *(() if any_.window is None else (any_.window >= 2,))),
            lambda masks: self._conclusions(any_, masks),
            any_.shapes,
            any_.sizes,
            contracts={registry.__func__: Contract(lambda *_: self._manager)},
        )

    @staticmethod
    def _conclusions(any_: AnyMask, masks: Any) -> Iterator[Conclusion]:
        if not isinstance(masks, tuple) or len(masks) != 1:
            raise Unsupported(f"masks that are {masks!r:.60}")
        yield from any_.conclusions(masks[0])

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Blocks that a real coordinator wrongly keeps or leaves out."""
        chance = trial.chance
        for _ in range(trial.tries // 10):
            size = chance.randint(1, 4)
            segment = 1 if self._kind is GroupKind.CHUNKED_LOCAL else chance.randint(1, 6)
            group = limited(self._kind, size, chance.randint(2, 6 * size), self._eagle)
            full = Group(GroupKind.FULL_ATTENTION, segment * size)
            layout = Layout((group, full), 1, self._eagle, size)
            real, shape = coordinator(self._parts, layout), geometry(group, segment * size)
            for _ in range(10):
                end = chance.randint(0, 5) * segment
                start = chance.randint(0, end) if self._late else 0
                values = {"aligned_token_len": end * size, "start_token": start * size}
                function = attribute(real, ENTRIES[self._what])
                mask = function(**arguments(function, values, function.__name__))[0]
                for block in range(start, end):
                    due = is_due(shape, block, Retention.DENSE, 0, 1)
                    due = with_departures(trial.known, shape, block, 0, due)
                    if (mask is None or mask[block - start]) is not due:
                        told = f"{layout.describe()}: block {block} of {start} to {end}"
                        yield Shown(told)
