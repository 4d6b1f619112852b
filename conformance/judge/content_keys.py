"""What registered keys promise of the content of their blocks."""

from collections.abc import Iterator, Mapping

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Key
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.content_entries import DueEntries, Sign
from hitproof.conformance.judge.content_store import ANYTHING, INVALID_LOAD, ContentStore
from hitproof.conformance.playing.checkpoints import exports_states
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.sharing import covered_tokens, is_determined

_NAMED = "cached_key_names_its_content"


class KeyedContent:
    """Compares the blocks of one manager with the keys that they are registered under."""

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        due: DueEntries,
        store: ContentStore,
        sign: Sign,
    ) -> None:
        self._engine = engine
        self._due = due
        self._store = store
        self._sign = sign
        ahead = engine.num_hash_lookahead_tokens
        self._names = due.prefixes
        if ahead:
            self._names = Prefixes(requests, engine.hash_block_size, ahead)
        self._checked: set[tuple[int, Name, int]] = set()

    def is_judged(self, group: Group) -> bool:
        """Whether the content of the group's blocks is modelled."""
        return self._due.is_modelled(group)

    def hold(self, group: int, block_id: int, name: Name) -> bool:
        """Whether the block holds the group's content of the named prefix."""
        return self._difference(group, block_id, name) is None

    def hold_in_step(self, group: int, block_id: int, name: Name) -> bool:
        """Whether a Mamba block holds the named state, or a copy of this step does.

        vLLM's scheduler keeps the target of a copy from others while the step is scheduled; a
        manager that is played gives it back at once.
        """
        request, end = self._names.request(name), self._names.end(name)
        copied, due = self._store.copied(group, block_id, 0), [ANYTHING]
        if request is not None and end is not None:
            due.append(self._due.prefix(request, end))
        is_copied = copied is not None and copied.target in due
        return is_copied or self.hold(group, block_id, name)

    def wrong(self, cached: Mapping[tuple[int, Name], tuple[int, ...]]) -> Iterator[Violation]:
        """The registered keys that do not name the content of their block.

        Each is checked when it is new, and when its block was written again.
        """
        now = {(group, name, block) for (group, name), ids in cached.items() for block in ids}
        for item in sorted(now):
            group, name, block = item
            if item in self._checked and block not in self._store.written:
                continue
            wrong = self._difference(group, block, name)
            if wrong is not None and self._due.is_modelled(self._engine.groups[group]):
                what, divergence = wrong
                if what.endswith(INVALID_LOAD):
                    continue  # no manager is told of it; reading it is wrong
                drafts = "draft" if divergence == Divergence.WRONG_DRAFTS else None
                states = exports_states(self._engine, self._engine.groups[group])
                several = "several" if self._moved_on(group, block, name) else None
                other = Defect.of(
                    Code.KEY_NAMES_OTHER_CONTENT, layers=drafts, states=states, modules=several
                )
                yield Violation(
                    self._sign(group, _NAMED, other, divergence),
                    f"group {group}: a block registered as {name} holds its content",
                    f"block {block}: {what}",
                    evidence=(frozenset([Block(block), Key(name)]),),
                    damages=(Block(block),),
                )
        self._checked = now
        self._store.written.clear()

    def _moved_on(self, index: int, block_id: int, name: Name) -> bool:
        """Whether a state is of more tokens than its key, and several modules compute some again.

        What a step registers are then fewer tokens than it computes.
        """
        group, ahead = self._engine.groups[index], self._engine.num_prefill_lookahead
        if group.kind is not GroupKind.MAMBA or ahead < 2:
            return False
        found, end = self._store.read(index, block_id, 0), self._names.end(name) or 0
        held = None if isinstance(found, str) else self._names.end(found.target)
        return held is not None and held > end

    def _difference(self, index: int, block_id: int, name: Name) -> tuple[str, Divergence] | None:
        """What a block holds instead of what its key describes; None when it holds that.

        Where only an entry of a draft layer is another, drafts are wrong, but no output is.
        """
        request, end = self._names.request(name), self._names.end(name)
        if request is None or end is None:
            return None
        size = self._engine.groups[index].block_size
        if self._engine.groups[index].kind is GroupKind.MAMBA:
            found = self._store.read(index, block_id, 0)
            held = found if isinstance(found, str) else found.target
            state = self._due.prefix(request, end)
            if held in (state, ANYTHING):
                return None
            return f"the state as of {held}", Divergence.UNSOUND
        # The name may end inside the block: the hash is that of its last hash unit.
        unit = self._engine.hash_block_size
        drafts: str | None = None
        covered = covered_tokens(end // unit - 1, unit, self._engine.num_hash_lookahead_tokens)
        for token in range((end - 1) // size * size, end):
            found, wanted = (
                self._store.read(index, block_id, token % size),
                self._due.entry(request, index, token),
            )
            if isinstance(found, str):
                return found, Divergence.UNSOUND
            if found.target != wanted.target:
                return f"at token {token} {found.target}", Divergence.UNSOUND
            determined = is_determined(token, self._due.lookahead, covered)
            if determined and found.draft != wanted.draft:
                drafts = drafts or f"at token {token} a draft layer's entry as of {found.draft}"
        return None if drafts is None else (drafts, Divergence.WRONG_DRAFTS)
