"""``remove_skipped_blocks`` of vLLM's managers, proved for all sizes and lengths."""

from collections.abc import Iterator
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.proofs.unbounded.freeing import REQUEST, AnyFreeing
from hitproof.proofs.unbounded.proving import Statement
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.settling import (
    Departure,
    OfManager,
    Shown,
    Trial,
    called,
    limited,
)

_REMOVE, _SKIPPED = "remove_skipped_blocks", "get_num_skipped_tokens"
_IN_RANGE = "_remove_blocks_in_range"


class Freeing(OfManager):
    """Which blocks of a running request the manager of a kind frees."""

    method = _REMOVE

    def __init__(self, subject: VllmSubject, kind: GroupKind) -> None:
        super().__init__(subject, kind)
        # Others stop at the first block that is missing; of Mamba, states between may be.
        self._gaps = kind is GroupKind.MAMBA
        self._frees_all = not self._gaps or _IN_RANGE in vars(self._manager)

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any request."""
        del known
        any_, parts = AnyFreeing(here, self._kind, self._frees_all), self._parts
        spec = self._spec()
        pool = parts.pools.BlockPool
        given = self._called(REQUEST, any_.computed)
        skipped = attribute(self._manager, _SKIPPED)
        return Statement(
            called,
            {"function": any_.free(self._function, given, self._manager, pool, spec)},
            any_.premises,
            any_.conclusions,
            any_.shapes,
            any_.sizes,
            contracts={skipped: any_.get_num_skipped_tokens()},
            counting=True,
        )

    def _called(self, request_id: str, computed: Any) -> dict[str, Any]:
        """The arguments of a call."""
        names = "processed_computed_tokens", "total_computed_tokens", "num_computed_tokens"
        return self._given({"request_id": request_id, **dict.fromkeys(names, computed)})

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Blocks that a real manager wrongly frees or keeps, step after step."""
        chance, parts = trial.chance, self._parts
        for _ in range(trial.tries // 10):
            size, bound = chance.randint(1, 3), chance.randint(1, 20)
            group = limited(self._kind, size, chance.randint(2, 9))
            configuration = Configuration(1, bound, size, group, size)
            pool = parts.pool(configuration)
            manager = parts.manager(self._manager, configuration, pool)
            table = manager.req_to_blocks[REQUEST] = list(pool.get_new_blocks(bound))
            if self._gaps:
                for place in range(bound):
                    if chance.random() < 0.3:
                        pool.free_blocks([table[place]])
                        table[place] = pool.null_block
                if chance.random() < 0.5:
                    manager.last_state_block_idx[REQUEST] = chance.randrange(bound)
            for computed in sorted(chance.randint(0, bound * size) for _ in range(3)):
                held = [place for place, block in enumerate(table) if not block.is_null]
                told = f"{group}, {computed} of {bound * size} tokens, blocks {held} are held"
                free = pool.get_num_free_blocks()
                try:
                    getattr(manager, _REMOVE)(**self._called(REQUEST, computed))
                    skipped = getattr(manager, _SKIPPED)(computed)
                except Exception as error:
                    yield Shown(f"{told}: raises {error!r}")
                    break
                due = [place for place in held if (place + 1) * size <= skipped]
                found = [place for place in held if table[place].is_null]
                number = pool.get_num_free_blocks() - free
                is_due = found == due if self._frees_all else set(found) <= set(due)
                if not is_due or number != len(found):
                    freed = f"{number} blocks are handed back, and {found} are replaced"
                    yield Shown(f"{told}: {freed}, where {due} are skipped")
