"""The block hashes of a workload in a file: made once, and read by each subject."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from hitproof.conformance.simulation.tokens import TokenRanges, block_hashes
from hitproof.conformance.simulation.workload import Workload

SIZE: int = sha256().digest_size


@dataclass(frozen=True)
class Arrival:
    """A request without its tokens: all that a manager is asked with.

    Attributes:
        prompt: tokens of the prompt.
        output: tokens that the model samples.
        lookup_only: whether it is only looked up.
        hashes: where in the file its hashes begin, in hashes.
    """

    prompt: int
    output: int
    lookup_only: bool
    hashes: int


class HashFile:
    """The hashes of requests, one after another.

    Arguments:
        path: the file.
        hash_block_size: tokens under one hash.
        lookahead: tokens past its block that a hash covers.
    """

    def __init__(self, path: Path, hash_block_size: int, lookahead: int = 0) -> None:
        self.path = path
        self.hash_block_size = hash_block_size
        self.lookahead = lookahead

    def num_hashes(self, tokens: int) -> int:
        """How many hashes ``tokens`` tokens have."""
        return max(0, tokens - self.lookahead) // self.hash_block_size

    def write(
        self, workload: Workload, done: Callable[[int], None] = lambda _: None
    ) -> list[Arrival]:
        """Make the hashes; ``done`` is called with the number of requests that have theirs."""
        places: dict[TokenRanges, int] = {}
        arrivals, end = [], 0
        with self.path.open("wb") as file:
            for number, request in enumerate(workload.requests):
                tokens = request.tokens
                if tokens not in places:
                    places[tokens] = end
                    hashes = b"".join(block_hashes(tokens, self.hash_block_size, self.lookahead))
                    file.write(hashes)
                    end += len(hashes) // SIZE
                arrivals.append(
                    Arrival(
                        request.num_prompt_tokens,
                        request.num_output_tokens,
                        request.lookup_only,
                        places[tokens],
                    )
                )
                done(number + 1)
        return arrivals

    def read(self, arrival: Arrival) -> list[bytes]:
        """The hashes of a request, prompt and output."""
        found = self._read(arrival.hashes, self.num_hashes(arrival.prompt + arrival.output))
        return [found[at : at + SIZE] for at in range(0, len(found), SIZE)]

    def every(self, arrival: Arrival, step: int, limit: int) -> Sequence[bytes]:
        """The hash of each ``step``-th block of a request up to ``limit`` tokens."""
        found = self._read(arrival.hashes, self.num_hashes(limit))
        return [found[at - SIZE : at] for at in range(step * SIZE, len(found) + 1, step * SIZE)]

    def _read(self, first: int, count: int) -> bytes:
        with self.path.open("rb") as file:
            file.seek(first * SIZE)
            return file.read(count * SIZE)
