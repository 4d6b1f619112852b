"""What each slot of the content model should hold.

Groups that opt out of prefix caching are modelled if they are windows, which are computed again
after a hit. Others keep no tokens, and are not modelled; nor are Mamba blocks that the drafts of
one step can fill: vLLM's ``mamba_utils`` keeps one state per step.
"""

from collections.abc import Callable, Mapping

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput, is_replayed
from hitproof.conformance.judge.content_store import Entry
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, drops_block

Sign = Callable[[int, str, Defect, Divergence], Signature]
"""The signature of a violation: of a group (an index), a claim, a defect and its class."""


class DueEntries:
    """The expected entries of the requests of one history.

    Attributes:
        has_drafts: for each group, whether draft layers may be in it.
        lookahead: on how many tokens after its own an entry of draft layers depends.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        replays: bool = False,
    ) -> None:
        self._engine, self._replays = engine, replays
        self.prefixes = Prefixes(requests, 1)
        self._num_tokens = {name: len(request.token_ids) for name, request in requests.items()}
        none_flagged = not any(group.eagle for group in engine.groups)
        self.has_drafts = [
            group.kind is not GroupKind.MAMBA
            and bool(drops_block(engine.use_eagle, group.eagle, none_flagged))
            for group in engine.groups
        ]
        self.lookahead = max(engine.num_prefill_lookahead, 1)
        self._entries: dict[tuple[str, bool, int], Entry] = {}

    def is_modelled(self, group: Group) -> bool:
        """Whether the group's content is modelled."""
        drafts = self._engine.num_speculative_tokens
        small = group.kind is GroupKind.MAMBA and 0 < group.block_size <= drafts
        return not small and (group.prefix_cacheable or (self._replays and is_replayed(group)))

    def entry(self, request: str, group: int, token: int) -> Entry:
        """The entry that the layers of a group, an index, keep for a token."""
        has_drafts, seen = self.has_drafts[group], token + 1
        entry = self._entries.get((request, has_drafts, token))
        if entry is None:
            draft = self.prefix(request, seen + self.lookahead) if has_drafts else ""
            entry = Entry(self.prefix(request, seen), draft)
            self._entries[request, has_drafts, token] = entry
        return entry

    def prefix(self, request: str, end: int) -> str:
        """The name of the request's first ``end`` tokens."""
        known = end <= self._num_tokens[request]
        return self.prefixes.name(request, end) if known else f"{request} past its end"
