"""Lookups of single groups without a ``KVCacheManager``, judged by the spec."""

import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from hitproof.conformance.checks.lookup import judge_answer
from hitproof.conformance.exploration.symbolic import Question, SymbolicBlock, SymbolicNullBlock
from hitproof.conformance.findings.findings import given
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.limits import refusal
from hitproof.conformance.subject.failures import CannotJudge, refusal_of
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.reference.lookup import Lookup
from hitproof.spec.groups import Group
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.adapter.groups import KINDS
from hitproof.vllm_integration.shadow.hooks import Method, old_names
from hitproof.vllm_integration.shadow.real import LookupPool, RealCache
from hitproof.vllm_integration.shadow.report import Report
from hitproof.vllm_integration.shadow.scope import group_of

_NEEDED = ("block_hashes", "max_length", "kv_cache_group_ids", "block_pool", "kv_cache_spec")


class _Keys:
    """A lookup of which only the keys are known: `conformance.subject.lookups.Lookup`."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = [keys]
        self.inputs: Sequence[object] = ()

    def __call__(self, pool: Any, max_length: int) -> LookupAnswer:
        """Never called."""
        raise NotImplementedError


class Lookups:
    """Judges them one by one; ``utils`` is the target's module ``kv_cache_utils``.

    Policies do not matter: a group's own lookup peeks no further than what it may serve.
    """

    def __init__(self, report: Report, utils: ModuleType) -> None:
        self._report = report
        self._utils = utils

    def judge(
        self,
        owner: Any,
        method: Method,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        result: Any,
    ) -> None:
        """Judge what ``owner``, a class of managers, returned."""
        bound = inspect.signature(method).bind(owner, *arguments, **keywords)
        bound.apply_defaults()
        try:
            values = old_names(bound.arguments)
            self._judge(owner, values, "resolve_block_hashes" in _names(method), result)
        except Exception as error:
            reason = refusal_of(error, asked=False)
            self._report.not_judged[f"a lookup without a manager: {reason}"] += 1

    def _judge(self, owner: Any, values: Mapping[str, Any], resolves: bool, result: Any) -> None:
        group = _group(owner, values)
        pool, ids = values["block_pool"], list(values["kv_cache_group_ids"])
        if not hasattr(getattr(pool, "cached_block_hash_to_block", None), "_cache"):
            raise CannotJudge("its pool is not a BlockPool")
        align = values["alignment_tokens"]
        if align % group.block_size:
            raise CannotJudge(refusal("shadow-fine-hits"))
        keys = values["block_hashes"]
        view = getattr(self._utils, "BlockHashListWithBlockSize", None)
        unit = getattr(pool, "hash_block_size", group.block_size)
        if resolves and unit != group.block_size and not isinstance(keys, view or ()):
            assert view is not None
            keys = view(keys, unit, group.block_size)
        tables, length = _answer(result, group.block_size)
        # Larger blocks have one key each by now.
        size = group.block_size
        cache = RealCache(pool, self._utils, [size] * (max(ids) + 1), size)
        num_blocks = len(keys)
        configuration = Configuration(len(ids), num_blocks, align, group, unit)
        self._report.lookups += 1
        self._report.alone += 1
        self._report.hits += bool(length)
        found: Any = LookupPool(cache, keys)
        units: Any = range(num_blocks)
        limit = min(values["max_length"] // size, num_blocks)
        due = Lookup(configuration.shape)(units, limit, ids, found)
        if length == len(due[0]) * size and [list(table) for table in tables] == due:
            return
        self._explain(configuration, cache, values, keys, tables, length)

    def _explain(
        self,
        configuration: Configuration,
        cache: RealCache,
        values: Mapping[str, Any],
        keys: Sequence[Any],
        tables: Sequence[Sequence[Any]],
        length: int,
    ) -> None:
        """Say what is wrong with an answer that is not the reference's, if anything is."""
        ids, entries = list(values["kv_cache_group_ids"]), cache.entries

        def held(group: int, block: int) -> Any:
            return entries.get(cache.key(group, keys[block]))

        cached: frozenset[Question] = frozenset(
            (0, block) for block in range(len(keys)) if all(held(g, block) for g in ids)
        )

        def symbolic(group: int, place: int, member: int, block: Any) -> object:
            if getattr(block, "is_null", False):
                return SymbolicNullBlock((0, -1), member, lambda: None)
            known = held(group, place) if place < len(keys) else None
            blocks = known.values() if isinstance(known, dict) else (known,)
            right = any(block is each for each in blocks)
            return SymbolicBlock((0, place if right else -1), member, lambda: None)

        seen = [
            [symbolic(group, place, member, block) for place, block in enumerate(table)]
            for member, (group, table) in enumerate(zip(ids, tables, strict=True))
        ]
        evidence = judge_answer(
            configuration,
            _Keys([b"%d" % block for block in range(len(keys))]),
            values["max_length"],
            LookaheadHorizon.CAPPED,
            cached,
            LookupAnswer(length, seen),
        )
        if evidence is not None:
            violation = Violation(evidence.signature, evidence.spec, evidence.actual)
            self._report.add(violation, tuple(given(evidence)), "at find_longest_cache_hit")


def _group(owner: Any, values: Mapping[str, Any]) -> Group:
    """The group that a lookup is about. Raises `CannotJudge` where the spec has no such kind."""
    kind = KINDS.get(owner.__name__)
    if kind is None:
        raise CannotJudge(refusal("shadow-kinds").format(kind=owner.__name__))
    missing = [name for name in _NEEDED if name not in values]
    if missing or "alignment_tokens" not in values:
        raise CannotJudge(f"it takes no {', '.join(missing) or 'alignment_tokens'}")
    if max(values.get("dcp_world_size", 1), values.get("pcp_world_size", 1)) > 1:
        raise CannotJudge(refusal("shadow-ranks"))
    spec = values["kv_cache_spec"]
    drops = values.get("drop_eagle_block", values.get("use_eagle", False))
    return group_of(kind, spec, spec.block_size, bool(drops))


def _answer(result: Any, block_size: int) -> tuple[Sequence[Sequence[Any]], int]:
    """The tables and the length of the hit; older lookups return the tables alone."""
    match result:
        case (tuple() as tables, int() as length):
            return tables, length
        case (list() as first, *_):
            return result, len(first) * block_size
    raise CannotJudge(f"it returned {result!r:.80}")


def _names(method: Method) -> tuple[str, ...]:
    code = getattr(inspect.unwrap(method), "__code__", None)
    return () if code is None else code.co_names
