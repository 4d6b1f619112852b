"""Workloads, what they could hit, and how the reference serves them."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from hitproof.conformance.emulation.releases import (
    VLLM_0_23,
    VLLM_0_24,
    VLLM_0_26,
    VLLM_0_30,
    VLLM_0_33,
    Policies,
    ReplayPolicy,
)
from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.scope.models import MODELS, Model
from hitproof.conformance.simulation.bounds import Bound, blocks_of_request, bounds
from hitproof.conformance.simulation.causes import Cause, Limit, fault_codes, limits, losses
from hitproof.conformance.simulation.generators import (
    GENERATORS,
    conversations,
    forks,
    system_prompts,
)
from hitproof.conformance.simulation.hash_file import HashFile
from hitproof.conformance.simulation.player import Simulation
from hitproof.conformance.simulation.reference import SimulatedReference
from hitproof.conformance.simulation.subject import Lookup
from hitproof.conformance.simulation.tokens import SharedPrefixes, TokenRanges, block_hashes, joined
from hitproof.conformance.simulation.traces import is_trace, read_trace
from hitproof.conformance.simulation.workload import (
    Workload,
    WorkloadError,
    WorkloadRequest,
    of_history,
    read_workload,
    write_workload,
)
from hitproof.conformance.tests.editing import cases
from hitproof.reference.manager import KVCacheManager
from hitproof.reference.request import Request
from hitproof.spec.groups import Group, GroupKind, alignment

FULL, SLIDING = GroupKind.FULL_ATTENTION, GroupKind.SLIDING_WINDOW
TWO = (Group(FULL, 16), Group(SLIDING, 4, window=8))
ATTENTION = [model for model in MODELS if all(g.kind is not GroupKind.MAMBA for g in model.groups)]


def engine(
    groups: tuple[Group, ...],
    workload: Workload,
    pool: float = 100,
    chunk: int = 128,
    unit: int = 4,
    interval: int | None = None,
    eagle: bool = False,
) -> EngineConfiguration:
    """One whose pool has room for a number of requests of the longest length."""
    made = EngineConfiguration(
        groups, 2, unit, workload.longest, chunk, use_eagle=eagle, retention_interval=interval
    )
    one = blocks_of_request(made, workload.longest, chunk)
    return replace(made, num_gpu_blocks=1 + int(pool * one))


def play(
    path: Path,
    workload: Workload,
    config: EngineConfiguration,
    policies: Policies | None = None,
    max_num_seqs: int = 1,
    manager: type[SimulatedReference] = SimulatedReference,
) -> tuple[Simulation, list[Bound]]:
    hashes = HashFile(path / "hashes", config.hash_block_size, config.num_hash_lookahead_tokens)
    arrivals = hashes.write(workload)
    subject = manager(config, Policies() if policies is None else policies)
    played = Simulation(subject, config, arrivals, hashes, max_num_seqs)
    played.advance(1e9)
    assert played.done
    assert sorted(each.request for each in played.served) == [*range(len(workload.requests))]
    played.served.sort(key=lambda each: each.request)
    return played, bounds(workload, config, arrivals, hashes)


def lost(played: Simulation, could: Sequence[Bound]) -> dict[Cause, int]:
    found: dict[Cause, int] = {}
    for bound, served in zip(could, played.served, strict=True):
        donor = None if bound.donor is None else played.served[bound.donor]
        for cause, tokens in losses(bound, served, donor).items():
            found[cause] = found.get(cause, 0) + tokens
    total = sum(max(0, b.unbounded - s.hit) for b, s in zip(could, played.served, strict=True))
    assert sum(found.values()) == total
    return found


def ids(ranges: TokenRanges) -> list[int]:
    return [token for first, last in ranges for token in range(first, last + 1)]


def test_shared_prefixes_are_the_longest() -> None:
    rng = random.Random(1)
    prefixes, before = SharedPrefixes(), list[tuple[list[int], int]]()
    for number in range(300):
        starts = [rng.choice((0, 10, 3)) for _ in range(rng.randint(1, 4))]
        ranges = joined((start, start + rng.randint(0, 6)) for start in starts)
        tokens = ids(ranges)
        shared = prefixes.shared(ranges)
        common = [
            next((i for i, (x, y) in enumerate(zip(tokens, one, strict=False)) if x != y), None)
            for one, _ in before
        ]
        lengths = [
            min(len(tokens), len(one)) if i is None else i
            for i, (one, _) in zip(common, before, strict=True)
        ]
        assert shared.tokens == max(lengths, default=0)
        begun = [p for (one, p), i in zip(before, lengths, strict=True) if i >= p]
        assert shared.prompt == max(begun, default=0)
        if shared.request is None:
            assert shared.tokens == 0
        else:
            assert lengths[shared.request] == shared.tokens
        prompt = rng.randint(1, len(tokens))
        prefixes.add(ranges, prompt, number)
        before.append((tokens, prompt))


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_hashes_are_those_of_the_reference(lookahead: int) -> None:
    ranges = joined([(5, 20), (21, 22), (7, 30), (100, 100)])
    request = Request("", ids(ranges), 4, num_hash_lookahead_tokens=lookahead)
    assert list(block_hashes(ranges, 4, lookahead)) == request.block_hashes


def test_a_workload_is_read_as_it_is_written() -> None:
    for make in GENERATORS.values():
        workload = make(5, 200, 3)
        assert read_workload(write_workload(workload)) == workload
        assert workload == make(5, 200, 3) != make(5, 200, 4)
        assert workload.longest <= 200


@cases("text, sentence")
def test_bad_workloads_are_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        read_workload(text, "w.json")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith("w.json")


def line(**changed: object) -> str:
    usual = {"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [1, 9]}
    return json.dumps(usual | changed)


def test_traces_share_blocks_with_equal_ids() -> None:
    text = "\n".join([line(), line(timestamp=2, input_length=1000, hash_ids=[1, 4])]).encode()
    assert is_trace(text)
    first, second = read_trace(text, "t").requests
    assert first.num_prompt_tokens == 1000
    assert second.num_prompt_tokens == 700
    assert first.num_output_tokens == 3
    prefixes = SharedPrefixes()
    prefixes.add(first.tokens, 1000, 0)
    assert prefixes.shared(second.tokens).tokens == 512
    assert not is_trace(b'{"requests": []}')


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "t has no request"),
        (line(hash_ids=[1]), "t line 1: 700 tokens are 2 blocks of 512, but hash_ids has 1"),
        (line(timestamp=-1), "t line 1: timestamp"),
        (line(extra=1), "there is no such field; a line has timestamp"),
        (line(hash_ids=[1, 1 << 60]), "number them anew"),
    ],
)
def test_bad_traces_are_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        read_trace(text.encode(), "t")
    assert sentence in str(refused.value)


def test_recorded_histories_are_workloads() -> None:
    recorded = next(
        found
        for found in (history(f"1:{number}") for number in range(50))
        if not any(r.images or r.cache_salt or r.lora_name for r in found.requests.values())
    )
    for request in of_history(recorded).requests:
        assert ids(request.prompt) == list(recorded.requests[request.name].prompt)
    salted = replace(
        recorded,
        requests={
            name: replace(each, cache_salt="salt") for name, each in recorded.requests.items()
        },
    )
    with pytest.raises(WorkloadError, match="a salt"):
        of_history(salted)


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("model", ATTENTION, ids=lambda model: model.name)
def test_a_large_pool_hits_what_an_unbounded_cache_would(
    make: object, model: object, tmp_path: Path
) -> None:
    assert callable(make)
    workload = make(8, 4000, 2)
    groups = tuple(replace(group, eagle=False) for group in model.groups)  # type: ignore[attr-defined]  # parametrized
    unit = model.hash_block_size  # type: ignore[attr-defined]  # parametrized
    for interval in (None, 0):
        config = engine(groups, workload, 20, 8192, unit, interval)
        played, could = play(tmp_path, workload, config)
        for served, bound in zip(played.served, could, strict=True):
            assert served.hit == served.valid
            assert bound.promised <= served.hit <= bound.unbounded
            assert bound.promised == bound.unbounded or interval is not None
            assert served.unregistered == ""
        assert set(lost(played, could)) <= {Cause.RETENTION}


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
@pytest.mark.parametrize("pool", [1.2, 2.5])
def test_foresight_is_between_a_manager_and_an_unbounded_cache(
    make: object, pool: float, tmp_path: Path
) -> None:
    assert callable(make)
    for seed in range(2):
        workload = make(20, 500, seed)
        for groups in ((Group(FULL, 4),), TWO, (Group(SLIDING, 4, window=20),)):
            config = engine(groups, workload, pool)
            played, could = play(tmp_path, workload, config)
            hits, best = sum(s.hit for s in played.served), sum(b.foresight for b in could)
            assert hits <= best <= sum(each.unbounded for each in could)
            assert set(lost(played, could)) <= {Cause.CAPACITY, Cause.EVICTION}


def test_foresight_knows_the_size_of_the_pool(tmp_path: Path) -> None:
    workload = conversations(4, 320, 0)
    small, large = (
        sum(b.foresight for b in play(tmp_path, workload, engine(TWO, workload, pool))[1])
        for pool in (1.2, 4.5)
    )
    assert small < large == 4 * 304


_RELEASES = [Policies(), VLLM_0_23, VLLM_0_24, VLLM_0_26, VLLM_0_30, VLLM_0_33]
_DRAFTS = {"none": (False, 0), "blocks dropped": (True, 0), "hashes look ahead": (True, 2)}
"""Whether lookups drop blocks, as behind a KV connector, and how far hashes look ahead."""


def forked(
    path: Path, model: Model, drafts: str, interval: int | None, tokens: int, places: int
) -> Iterator[tuple[Policies, dict[Cause, int], Counter[Limit]]]:
    """What requests that follow one of this length lose, and what they cannot hit."""
    eagle, ahead = _DRAFTS[drafts]
    if not model.configurations(eagle):
        return
    groups = model.groups if eagle else tuple(replace(g, eagle=False) for g in model.groups)
    workload = forks(places + 6, tokens, 1)
    config = engine(groups, workload, 8.0, 8192, model.hash_block_size, interval, eagle)
    config = replace(config, num_hash_lookahead_tokens=ahead)
    for policies in _RELEASES:
        if interval is None or policies.sparse_kinds:
            played, could = play(path, workload, config, policies)
            reach = sum((Counter(limits(each)) for each in could), Counter[Limit]())
            for bound, served in zip(could, played.served, strict=True):
                beyond = min(bound.shared, bound.cap) - bound.unbounded
                assert sum(limits(bound).values()) == beyond >= 0
                assert served.hit <= bound.unbounded
            yield policies, lost(played, could), reach


_PLACES = 8, 2000
_MIXED = ("DeepSeek-V4-like", "Qwen3-Next-like")  # first, of which most is kept
_FORKED = sorted(
    product(MODELS, _DRAFTS, _PLACES),
    key=lambda each: (each[2], each[0].name not in _MIXED, each[1] == "hashes look ahead"),
)


@pytest.mark.long(keep=4)
@pytest.mark.parametrize(
    ("model", "drafts", "places"), _FORKED, ids=lambda each: getattr(each, "name", str(each))
)
def test_each_lost_hit_has_a_name(model: Model, drafts: str, places: int, tmp_path: Path) -> None:
    unit, every = alignment(model.groups), places > 100
    ends = {unit * part // 3 for part in ((5, 13) if every else (4, 6, 11))}
    for tokens in sorted({end + more for end in ends for more in (0, 1)}):
        for interval in (None, 0, 2 * unit):
            for policies, found, _ in forked(tmp_path, model, drafts, interval, tokens, places):
                assert Cause.UNKNOWN not in found, (tokens, interval, policies)


def test_what_users_reported_has_a_name(tmp_path: Path) -> None:
    gemma, deepseek, qwen = (
        next(model for model in MODELS if model.name.startswith(name))
        for name in ("Gemma-4", "DeepSeek", "Qwen3-Next")
    )
    # A short prompt with drafts, and a branch inside the last aligned unit.
    *_, (_, none, reach) = forked(tmp_path, deepseek, "blocks dropped", None, 400, 20)
    assert not none
    assert reach[Limit.DRAFTS]
    assert reach[Limit.BLOCKS]
    # A system prompt for which Mamba keeps no state.
    *_, (_, found, _) = forked(tmp_path, qwen, "none", None, 2200, 20)
    assert set(found) == {Cause.STEPS}
    # A window that switches hits inside blocks off for states and full attention.
    states = replace(qwen.groups[1], block_size=32)
    switched = replace(gemma, groups=(Group(FULL, 32), states, Group(SLIDING, 32, window=64)))
    *_, (_, _, reach) = forked(tmp_path, switched, "none", None, 100, 20)
    assert reach[Limit.ATTENTION]
    assert not reach[Limit.BLOCKS]
    # A single group, which never looks past its cap.
    prompt = WorkloadRequest(((1, 64),))
    config = engine((Group(FULL, 16),), Workload((prompt,) * 2), unit=16, eagle=True)
    assert lost(*play(tmp_path, Workload((prompt,) * 2), config)) == {Cause.SINGLE_GROUP: 16}


def test_a_hit_that_is_lost_silently_has_no_name(tmp_path: Path) -> None:
    """A manager that keeps the latest boundary only, where its engine asks for all."""

    class _KeepsLess(SimulatedReference):
        def __init__(self, config: EngineConfiguration, policies: Policies) -> None:
            super().__init__(replace(config, retention_interval=0), policies)

    workload = forks(30, 400, 1)
    config = engine(TWO, workload, 8.0)
    assert not lost(*play(tmp_path, workload, config))
    assert set(lost(*play(tmp_path, workload, config, manager=_KeepsLess))) == {Cause.UNKNOWN}


def test_causes_name_retention_capacity_and_eviction(tmp_path: Path) -> None:
    workload = system_prompts(20, 400, 1)
    played, could = play(tmp_path, workload, engine(TWO, workload, interval=0))
    assert set(lost(played, could)) == {Cause.RETENTION}
    played, could = play(tmp_path, workload, engine(TWO, workload, 1.01))
    assert Cause.CAPACITY in lost(played, could)
    apart = tuple(
        WorkloadRequest(((first, first + 159),)) for first in (1000, 2000, 3000, 4000, 1000)
    )
    workload = Workload(apart)
    played, could = play(tmp_path, workload, engine((Group(FULL, 4),), workload, 3.0))
    assert lost(played, could) == {Cause.EVICTION: 156}


class _ShortLookup(SimulatedReference):
    """A fault: hits end one alignment early."""

    def lookup(self, request: Request) -> Lookup:
        length, blocks = super().lookup(request)
        return Lookup(max(0, length - 16), tuple(t[:-1] for t in blocks))


def test_a_short_lookup_is_a_fault(tmp_path: Path) -> None:
    workload = conversations(3, 320, 0)
    config = engine((Group(FULL, 16),), workload, unit=16)
    played, could = play(tmp_path, workload, config, manager=_ShortLookup)
    assert lost(played, could) == {Cause.FAULT: 3 * 16}
    assert fault_codes(played.served) == {"hit-too-short": 3}


def test_a_block_that_is_not_registered_is_a_fault(tmp_path: Path) -> None:
    workload = Workload(tuple(WorkloadRequest(((1, 97),)) for _ in range(2)))
    groups = (Group(FULL, 16), Group(SLIDING, 4, window=8, eagle=True))
    config = engine(groups, workload, interval=0, eagle=True)
    policies = Policies(replays=ReplayPolicy.LAST_TOKEN_RECOMPUTED)
    played, could = play(tmp_path, workload, config)
    assert fault_codes(played.served) == {}
    assert not lost(played, could)
    played, could = play(tmp_path, workload, config, policies)
    assert "promised-block-unregistered" in fault_codes(played.served)


def test_requests_that_run_together_are_refused_and_preempted(tmp_path: Path) -> None:
    requests = tuple(
        WorkloadRequest(((n * 1000, n * 1000 + 99),), ((n * 1000 + 500, n * 1000 + 599),))
        for n in range(1, 7)
    )
    workload = Workload(requests)
    played, _ = play(tmp_path, workload, engine((Group(FULL, 4),), workload, 2.2), None, 4)
    assert all(each.finished for each in played.served)
    assert sum(each.refused for each in played.served)
    assert sum(each.preempted for each in played.served)
    alone, _ = play(tmp_path, workload, engine((Group(FULL, 4),), workload, 2.2))
    assert not sum(each.refused + each.preempted for each in alone.served)


def test_a_request_that_never_fits_is_not_finished(tmp_path: Path) -> None:
    workload = Workload(tuple(WorkloadRequest(((n, n + 199),)) for n in (0, 1000)))
    config = replace(engine((Group(FULL, 4),), workload), num_gpu_blocks=30)
    for chunk in (64, 512):
        played, _ = play(tmp_path, workload, replace(config, max_num_batched_tokens=chunk))
        assert [each.finished for each in played.served] == [False, False]


def test_the_reference_keeps_nothing_of_requests_that_ended(tmp_path: Path) -> None:
    workload = conversations(4, 600, 0)
    config = engine(TWO, workload, 1.5)
    found: list[KVCacheManager] = []

    class Watched(SimulatedReference):
        def __init__(self, config: EngineConfiguration, policies: Policies) -> None:
            super().__init__(config, policies)
            found.append(self._manager)

    play(tmp_path, workload, config, manager=Watched)
    for group in found[0].groups:
        assert not any(value for value in vars(group).values() if isinstance(value, dict))
