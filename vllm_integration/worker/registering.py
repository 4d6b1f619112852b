"""``cache_blocks`` of vLLM's managers, proved for all sizes and lengths."""

from collections.abc import Iterator, Mapping
from inspect import signature
from types import FunctionType
from typing import Any

from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.failures import Predates
from hitproof.proofs.unbounded.proving import Statement
from hitproof.proofs.unbounded.registering import AnyRegistration
from hitproof.proofs.unbounded.source import Unsupported
from hitproof.proofs.unbounded.terms import Arithmetic
from hitproof.proofs.unbounded.values import Contract
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.adapter.inspection import attribute, parameters_of
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.settling import (
    MASK_PARAMETERS,
    Departure,
    OfManager,
    Shown,
    Trial,
    called,
    limited,
)

_CACHE, _PARTIAL = "cache_blocks", "_cache_partial_tail_block"


class Registering(OfManager):
    """Which blocks of a request the manager of a kind registers."""

    method = _CACHE

    def __init__(self, subject: VllmSubject, kind: GroupKind) -> None:
        super().__init__(subject, kind)
        mask = self._parts.find_mask(self._manager)
        if mask is None:
            raise Predates(f"{self._manager.__name__} has no mask")
        self._mask: FunctionType = getattr(mask, "__func__", mask)
        base = attribute(self._parts.managers, "SingleTypeKVCacheManager")
        inherited = vars(base).get(self._mask.__name__)
        is_plain = getattr(inherited, "__func__", inherited) is self._mask
        self._plain = self._mask if is_plain else None
        self._tells_replay = "replay_boundaries" in parameters_of(self._function)
        is_mamba = kind is GroupKind.MAMBA
        self._leaves_partial = is_mamba and hasattr(self._manager, _PARTIAL)
        self._thins_out = "retention_interval" in parameters_of(self._function)

    def statement(self, here: Arithmetic, known: tuple[Departure, ...]) -> Statement:
        """What holds of any request."""
        del known
        any_, parts = AnyRegistration(here, self._tells_replay), self._parts
        of_spec = self._spec(prefix_cacheable=True, block_size=any_.block_size)
        values = {
            "request": any_.request(parts.requests.Request),
            "num_tokens": any_.num_tokens,
            "alignment_tokens": any_.alignment,
            "retention_interval": any_.interval,
            "replay_boundaries": (any_.replay,),
        }
        keywords = self._given(values)
        pool = parts.pools.BlockPool
        register = any_.register(self._function, keywords, self._manager, pool, of_spec)
        contracts = {self._mask: any_.mask(of_spec, self._read, self._plain)}
        if self._leaves_partial:
            # What is registered of blocks that are not full is registered beside these.
            contracts[attribute(self._manager, _PARTIAL)] = Contract(lambda *_, **_named: None)
        looks_ahead = "num_hash_lookahead_tokens" in parameters_of(pool)
        return Statement(
            called,
            {"function": register},
            (any_.has_blocks, *(() if looks_ahead else (any_.all_hashed,))),
            any_.conclusions,
            sizes=any_.sizes,
            contracts=contracts,
        )

    def _read(self, *given: Any, **named: Any) -> Mapping[str, Any]:
        """What a mask is called with."""
        told = signature(self._mask).bind(*given, **named).arguments
        _receiver, *others = told.items()
        if unknown := [name for name, _ in others if name not in MASK_PARAMETERS]:
            raise Unsupported(f"a mask with {', '.join(unknown)}")
        return {MASK_PARAMETERS[name]: value for name, value in others}

    def natively(self, trial: Trial) -> Iterator[Shown]:
        """Blocks that a real manager registers other than its mask says, chunk after chunk."""
        chance, parts = trial.chance, self._parts
        for _ in range(trial.tries // 10):
            size, bound = chance.randint(1, 3), chance.randint(1, 20)
            eagle = chance.random() < 0.5 and self._kind is not GroupKind.CHUNKED_LOCAL
            group = limited(self._kind, size, chance.randint(2, 9), eagle)
            alignment = size * (1 if group.chunk else chance.randint(1, 4))
            configuration = Configuration(1, bound, alignment, group, size)
            pool = parts.pool(configuration)
            manager = parts.manager(self._manager, configuration, pool)
            if self._leaves_partial:
                setattr(manager, _PARTIAL, lambda *_, **_named: None)
            request = parts.request(bound * size + size - 1, size)
            blocks = pool.get_new_blocks(bound)
            manager.req_to_blocks[request.request_id] = blocks
            replay, due = request.num_prompt_tokens - 1, [False] * bound
            interval = chance.choice([None, 0, alignment]) if self._thins_out else None
            of_call = {
                "alignment_tokens": alignment,
                "retention_interval": interval,
                "replay_boundaries": (replay,),
            }
            of_mask = {
                "alignment": alignment,
                "spec": parts.spec(group),
                "eagle": group.eagle,
                "interval": interval,
                "boundaries": [replay],
                "num_prompt_tokens": request.num_prompt_tokens,
                "ranks": 1,
            }
            before = 0
            for end in sorted(chance.randint(0, bound * size) for _ in range(3)):
                values = {"request": request, "num_tokens": end, **of_call}
                told = f"{group}, alignment {alignment}, {end} tokens"
                try:
                    getattr(manager, _CACHE)(**self._given(values))
                except Exception as error:
                    yield Shown(f"{told}: raises {error!r}")
                    break
                if end // size > before:
                    own = {**of_mask, "start": before, "end": end // size}
                    due[before : end // size] = self._masked(manager, own)
                    before = end // size
                found = [block.block_hash is not None for block in blocks]
                if found != due:
                    yield Shown(f"{told}: blocks {found} are registered, not {due}")

    def _masked(self, manager: Any, own: Mapping[str, Any]) -> list[bool]:
        """What the real mask says of some blocks."""
        keep = [True] * (own["end"] - own["start"])
        of_instances = getattr(type(manager), self._mask.__name__) is self._mask
        if of_instances and own["alignment"] == manager.block_size:  # it is not asked for
            return keep
        known = {name: own[of] for name, of in MASK_PARAMETERS.items()}
        given = {name: known[name] for name in signature(self._mask).parameters if name in known}
        return self._mask(manager if of_instances else type(manager), **given) or keep
