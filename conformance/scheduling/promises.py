"""Promised hits: how much of a request a scheduler must find in the cache, whatever it decided.

Only where nothing can have been evicted, and of what ended requests have computed:

- A *resend* of a prompt, and an *extension* or next turn of it, hit the boundary for which the
  prompt's end is kept (`spec.retention.replay_boundary`, `spec.releases.fine.tail_boundary`). It is
  the scheduler that must end a chunk there for the sake of recurrent states: that is its contract,
  since it chooses the chunks.
- A *sibling*, which shares less than the prompt, hits the longest boundary in what is shared at
  which every group's state could be kept: with recurrent states, only where a chunk ended. Where
  retention is sparse no sibling is promised anything but what an interval says, and the prefix that
  two requests were seen to share, if its state is kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.histories.workloads import Arrival
from hitproof.conformance.judge.promises import JudgedPolicies, Promises
from hitproof.spec.groups import GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon, horizon
from hitproof.spec.retention import replay_boundary
from hitproof.spec.sharing import final_tokens


@dataclass(frozen=True)
class Donor:
    """An ended request.

    Attributes:
        name: its name.
        tokens: its tokens that were computed, as `Arrival.content` has those of its prompt.
        num_prompt_tokens: how many of them were its prompt.
        ends: where its chunks ended.
        junction: the end of the prefix that it was seen to share when it was admitted, 0 for none.
    """

    name: str
    tokens: tuple[Any, ...]
    num_prompt_tokens: int
    ends: frozenset[int]
    junction: int = 0


@dataclass(frozen=True)
class Due:
    """A promised hit.

    Attributes:
        tokens: how long it is at least.
        who: what the request is to the one that computed it: resend, extension or sibling.
        donor: the request that computed it.
    """

    tokens: int
    who: str
    donor: Donor


class PromisedHits:
    """The promised hits of one engine.

    Attributes:
        is_sparse: whether retention is, of any of its groups.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        arrivals: Mapping[str, Arrival],
        policies: JudgedPolicies,
    ) -> None:
        self._engine = engine
        self._arrivals = arrivals
        self._policies = policies = policies.on(engine)
        requests = {name: each.request for name, each in arrivals.items()}
        self._promises = Promises(engine, requests, policies.groups(engine), policies)
        self._fine = policies.fine(engine)
        self._unit = engine.hash_block_size if self._fine else engine.alignment
        self._has_states = any(group.kind is GroupKind.MAMBA for group in engine.groups)
        # Whose drafts need a state past the hit, or a lookup without margin, is promised less.
        self._may_peek = policies.horizon is not LookaheadHorizon.CANDIDATE and not self._has_states
        # No hit is taken of which all would be computed again.
        self._least = 1 + policies.replayed(engine)
        self.is_sparse = any(map(self._promises.is_retained, engine.groups))

    def due(self, request: str, donors: Iterable[Donor]) -> Due | None:
        """The longest hit that is promised to a request that arrives after ``donors`` ended."""
        arrival = self._arrivals[request]
        found = [
            due
            for donor in donors
            if self._alike(self._arrivals[donor.name], arrival)
            and (due := self._by(arrival, donor)).tokens >= self._least
        ]
        return max(found, key=lambda due: due.tokens, default=None)

    @staticmethod
    def _alike(one: Arrival, other: Arrival) -> bool:
        return (one.cache_salt, one.lora_name) == (other.cache_salt, other.lora_name)

    def _by(self, arrival: Arrival, donor: Donor) -> Due:
        shared = common(arrival.content, donor.tokens)
        prompt, tokens = donor.num_prompt_tokens, len(arrival.prompt)
        if shared >= prompt:
            who = "resend" if tokens == prompt else "extension"
            return Due(self._replayed(donor, prompt, tokens, shared), who, donor)
        sibling = max(self._sibling(shared, tokens, donor), self._junction(shared, tokens, donor))
        return Due(sibling, "sibling", donor)

    def _junction(self, shared: int, tokens: int, donor: Donor) -> int:
        """What two requests were seen to share is kept for the third."""
        reach = donor.junction + self._promises.reach_tokens
        return donor.junction if donor.junction and reach <= shared < tokens else 0

    def _replayed(self, donor: Donor, prompt: int, tokens: int, shared: int) -> int:
        ahead = self._engine.num_hash_lookahead_tokens
        if self._fine:
            kept = self._promises.tail(donor.name)
            final = kept + self._promises.lookahead_tokens <= self._final(donor)
            if kept >= tokens or not final:
                kept = 0  # past what a resend may hit, or not final when it ended; no other is kept
        else:
            lookahead = self._promises.lookahead_tokens
            resend = tokens == prompt
            cap = prompt - 1 if resend else prompt
            reach = horizon(self._policies.horizon, prompt) if resend else prompt
            reach = min(int(reach), self._final(donor))
            kept = int(replay_boundary(cap, reach, lookahead, self._unit))
        # A hash that looks ahead is that of tokens which both have.
        most = (min(shared, prompt) - ahead) // self._unit * self._unit
        return max(0, min(kept, most))

    def _sibling(self, shared: int, tokens: int, donor: Donor) -> int:
        lookahead = self._promises.lookahead_tokens
        if self.is_sparse or self._fine or (lookahead and not self._may_peek):
            return 0
        reach = min(
            min(shared, self._final(donor)) - self._promises.reach_tokens,
            horizon(self._policies.horizon, tokens) - lookahead,
            tokens - 1,
        )
        most = int(reach) // self._unit * self._unit
        if not self._has_states:
            return max(most, 0)
        return max((end for end in donor.ends if end <= most and end % self._unit == 0), default=0)

    def _final(self, donor: Donor) -> int:
        """How many tokens of an ended request no draft layer computes again."""
        return int(final_tokens(len(donor.tokens), max(1, self._engine.num_prefill_lookahead)))


def common(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
    """How many tokens both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
