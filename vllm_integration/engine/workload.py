"""What an engine is asked: requests that share prefixes, in waves that a small pool cannot hold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from random import Random

from hitproof.vllm_integration.engine.models import MAX_MODEL_LEN, VOCABULARY, Kind

ADAPTER = "poet"
"""The LoRA adapter's name, and a cache salt that reads the same."""
_PREFIXES = (100, 128, 170)
_WAVES, _IN_WAVE = 4, 6


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        prompt: token ids; those of a further turn follow the request before and its output.
        max_tokens: how many tokens the engine samples, greedily.
        follows: the request, a number, whose prompt and output come before; None for a first turn.
        salt: the cache salt; None without one.
        adapter: whether the LoRA adapter is used.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    follows: int | None = None
    salt: str | None = None
    adapter: bool = False

    def prompt_after(self, said: Mapping[int, Sequence[int]]) -> list[int]:
        """The whole prompt, where ``said`` has prompt and output of earlier requests."""
        before = [] if self.follows is None else said[self.follows]
        return [*before, *self.prompt]


def waves(kind: Kind, seed: str) -> list[list[Asked]]:
    """The workload: the requests of a wave run together, and a wave ends before the next starts.

    Equal seeds give equal workloads.
    """
    random = Random(f"{kind} {seed}")
    prefixes = [_tokens(random, length) for length in _PREFIXES]
    found: list[list[Asked]] = []
    lengths: dict[int, int] = {}
    for wave in range(_WAVES):
        requests: list[Asked] = []
        for _ in range(_IN_WAVE):
            number = wave * _IN_WAVE + len(requests)
            made = _request(random, prefixes, kind)
            turns = [n for n in lengths if n // _IN_WAVE == wave - 1 and lengths[n] < 230]
            if turns and random.random() < 0.4:
                made = _turn(random, random.choice(turns), found)
            before = 0 if made.follows is None else lengths[made.follows]
            lengths[number] = before + len(made.prompt) + made.max_tokens
            assert lengths[number] <= MAX_MODEL_LEN
            requests.append(made)
        found.append(requests)
    return found


def batches(found: Sequence[Sequence[Asked]]) -> list[list[Asked]]:
    """What is asked together: the waves, but no request with an adapter beside one without.

    Up to 0.30 the CPU's kernels take the adapter of one request for all of a batch.
    """
    return [list(batch) for wave in found for _, batch in groupby(wave, lambda each: each.adapter)]


def _request(random: Random, prefixes: Sequence[tuple[int, ...]], kind: Kind) -> Asked:
    prefix = random.choice(prefixes)
    cut = len(prefix) if random.random() < 0.6 else random.randint(20, len(prefix))
    prompt = prefix[:cut] + _tokens(random, random.randint(2, 50))
    who = random.choice((None, "salt", "adapter")) if kind is Kind.ADAPTERS else None
    salt = ADAPTER if who == "salt" else None
    return Asked(prompt, random.randint(4, 24), salt=salt, adapter=who == "adapter")


def _turn(random: Random, before: int, found: Sequence[Sequence[Asked]]) -> Asked:
    earlier = found[before // _IN_WAVE][before % _IN_WAVE]
    prompt = _tokens(random, random.randint(2, 40))
    output = random.randint(4, 24)
    return Asked(prompt, output, before, earlier.salt, earlier.adapter)


def _tokens(random: Random, length: int) -> tuple[int, ...]:
    return tuple(random.randrange(VOCABULARY) for _ in range(length))
