"""Outputs with and without the cache, compared number by number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_FACTOR = 10
_ROUNDING = 2.0**-23
_FLOOR = 1024 * _ROUNDING
"""What rounding alone may add up to where the noise that was measured is none."""
MOST_NOISE = 1e-2
"""Noise of batching above which numbers show nothing: a wrong hit may differ by as little."""


@dataclass(frozen=True)
class Output:
    """What an engine answered to one request.

    Attributes:
        tokens: the sampled tokens.
        logprobs: for each of them the log probability of every token of the vocabulary.
        hit: tokens of the prompt that the cache served; of a preempted request the last time.
    """

    tokens: Sequence[int]
    logprobs: Sequence[Sequence[float]]
    hit: int


@dataclass(frozen=True)
class Difference:
    """The first token of a request whose distribution is not that of no caching.

    Attributes:
        request: its number in the workload.
        token: the sampled token, by position.
        size: the largest difference of a log probability.
    """

    request: int
    token: int
    size: float

    def as_json(self) -> dict[str, Any]:
        """The difference as JSON."""
        return {"request": self.request, "token": self.token, "size": self.size}


@dataclass(frozen=True)
class Compared:
    """Two runs of one workload, compared.

    Attributes:
        tokens: distributions that were compared.
        worst: the largest difference of a log probability among them.
        different: the first difference above the threshold, for each request.
    """

    tokens: int
    worst: float
    different: tuple[Difference, ...]


def threshold(noise: float) -> float:
    """The difference above which numbers are wrong, where batching alone makes one of ``noise``."""
    return max(_FACTOR * noise, _FLOOR)


def compare(
    expected: Sequence[Output], actual: Sequence[Output], limit: float = float("inf")
) -> Compared:
    """Compare the outputs of each request, as far as its inputs are the same.

    After a difference above ``limit``, and after another token was sampled, the rest of a request
    has other inputs and is not compared.
    """
    tokens, worst = 0, 0.0
    different = []
    for number, (wanted, found) in enumerate(zip(expected, actual, strict=True)):
        pairs = zip(wanted.logprobs, found.logprobs, wanted.tokens, found.tokens, strict=False)
        for place, (ours, theirs, right, sampled) in enumerate(pairs):
            size = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
            tokens += 1
            worst = max(worst, size)
            if not size <= limit:  # a NaN is a difference, too
                different.append(Difference(number, place, size))
                break
            if right != sampled:
                break
    return Compared(tokens, worst, tuple(different))
