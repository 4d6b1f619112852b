"""The content model: what the forward pass has written into each block, and what it reads.

Alongside the system under test, every computed token writes its identity through the block tables
that the manager returned, and every resumed step reads what its attention needs
(`spec.attention`). Reading anything but the right content is wrong whatever the hit length is; so
is a key that is registered for content that it does not describe.

- The entry of a token in an attention layer stands for the request's prefix up to that token. An
  entry of a draft layer stands for one token more (`spec.sharing`).
- A Mamba block holds one state, that of the prefix as of some token. In align mode a step writes
  the state of its end into the block that it ends in. Each draft takes one block after it, and the
  state of the accepted tokens is copied into the block that they fill. vLLM: ``mamba_utils``. A
  state that another request computes in this very step is not there yet.
- If the backend supports it, a step also exports the state of a token inside its chunk
  (`conformance.playing.checkpoints`).
- A copy that the manager requests is made before the step computes: it copies what earlier steps
  have left in the block.
- What a KV connector loads is there when the load is done. The entries of rejected drafts, and
  those that draft layers wrote while they proposed, are garbage and must be overwritten before they
  are read.

Groups that opt out of prefix caching are not modelled, nor are Mamba blocks that the drafts of one
step can fill: `mamba_utils` keeps one state per step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Key, Table
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.naming import Name, Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.content_store import ANYTHING, MISSING, ContentStore, Entry
from hitproof.conformance.playing.checkpoints import exported, exports_states
from hitproof.conformance.playing.expectations import Held
from hitproof.conformance.subject.managers import Tables
from hitproof.spec.attention import attends, reads_state
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind, drops_block
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.sharing import covered_tokens, is_determined
from hitproof.spec.terms import INTEGERS

_READ = "hit_has_every_block_attention_reads"
_SHARED = "reused_content_is_determined_by_the_hit"
_NAMED = "cached_key_names_its_content"
_GARBAGE = "garbage of drafts"


def null_read(loaded: bool) -> Defect:
    """A read of a null or missing block; ``loaded``: a connector wrote tokens of the request."""
    return Defect.of(Code.NULL_BLOCK_READ, after="load" if loaded else None)


@dataclass(frozen=True)
class _Pass:
    """A forward pass with unsettled drafts: tokens from ``start``, of which drafts are the last."""

    start: int
    num_tokens: int
    drafts: int
    tables: Tables


class ContentModel:
    """The content of one manager's blocks.

    ``sign`` makes the signature of a violation, of a group (an index), a claim, a defect and its
    class.
    ``every_state`` says that a step writes the state of each block that it fills, as vLLM did
    before it had a ``mamba_cache_mode``; ``policy`` is how far past a hit lookups may peek.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        sign: Callable[[int, str, Defect, Divergence], Signature],
        every_state: bool = False,
        policy: LookaheadHorizon = LookaheadHorizon.HASHED,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._sign = sign
        self._prefixes = keys = Prefixes(requests, 1)
        ahead = engine.num_hash_lookahead_tokens
        if ahead:
            keys = Prefixes(requests, engine.hash_block_size, ahead)
        self._keys = keys
        self._num_tokens = {name: len(request.token_ids) for name, request in requests.items()}
        self._every_state = every_state
        nobody = not any(group.eagle for group in engine.groups)
        self._has_drafts = [
            group.kind is not GroupKind.MAMBA
            and bool(drops_block(engine.use_eagle, group.eagle, nobody))
            for group in engine.groups
        ]
        self._store = ContentStore()
        self._passes: dict[str, _Pass] = {}
        # The block that has the running state; none before a request's first step.
        self._running: dict[tuple[str, int], int] = {}
        self._checked: set[tuple[int, Name, int]] = set()
        self._loaded: set[str] = set()

    def new_step_starts(self) -> None:
        """From now on, what earlier steps computed is there."""
        self._store.new_step_starts()

    def copy(self, source: int, target: int) -> None:
        """The worker copies a block before the step computes."""
        self._store.copy(source, target)

    def free(self, request: str) -> None:
        """The request gives up its blocks."""
        self._passes.pop(request, None)
        self._loaded.discard(request)
        for group in range(len(self._engine.groups)):
            self._running.pop((request, group), None)

    def load(self, request: str, tables: Tables, start: int, end: int, known: int) -> None:
        """A connector wrote the tokens from ``start`` to ``end``; the request has ``known`` tokens.

        If these are all its tokens, the last one is recomputed. A Mamba layer then needs the state
        before it, which only the connector can have kept, so that state is not judged.
        """
        self._loaded.add(request)
        for index, (group, table) in enumerate(zip(self._engine.groups, tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                block_id = _at(table, (end - 1) // group.block_size)
                held = self._prefix(request, end) if end < known else ANYTHING
                self._store.write(index, block_id, 0, Entry(held), request, loaded=True)
                self._running[request, index] = block_id
            else:
                self._write_entries(request, index, table, range(start, end))

    def compute(
        self, request: str, tables: Tables, start: int, num_new: int, known: int
    ) -> Iterator[Violation]:
        """The forward pass on ``num_new`` tokens from ``start``; what it reads wrong.

        Tokens from ``known`` on are drafts, assumed to be right until `settle` is called.
        """
        end = start + num_new
        self._passes[request] = _Pass(start, num_new, max(0, end - known), tables)
        judged = [
            (index, group, tables[index])
            for index, group in enumerate(self._engine.groups)
            if self._is_modelled(group)
        ]
        states = [item for item in judged if item[1].kind is GroupKind.MAMBA]
        attention = [item for item in judged if item[1].kind is not GroupKind.MAMBA]
        # Blocks that a state moves out of may be written in the same step.
        for index, _, table in states:
            yield from self._read_state(request, index, table, start)
        for index, _, table in states:
            self._write_states(request, index, table)
        for index, _, table in attention:
            self._write_entries(request, index, table, range(start, end))
        for index, _, table in attention:
            yield from self._read_entries(request, index, table, start, end)

    def _is_modelled(self, group: Group) -> bool:
        drafts = self._engine.num_speculative_tokens
        small = group.kind is GroupKind.MAMBA and 0 < group.block_size <= drafts
        return group.prefix_cacheable and not small

    def settle(self, request: str, num_computed: int) -> None:
        """The drafts of the last pass are settled: tokens from ``num_computed`` on are garbage."""
        last = self._passes.pop(request, None)
        if last is None:
            return
        for index, (group, table) in enumerate(zip(self._engine.groups, last.tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                self._settle_states(request, index, table, last, num_computed)
                continue
            garbage = Entry(_GARBAGE, _GARBAGE if self._has_drafts[index] else "")
            for token in range(num_computed, last.start + last.num_tokens):
                block, slot = divmod(token, group.block_size)
                self._store.write(index, _at(table, block), slot, garbage, request)
            if self._has_drafts[index]:
                self._propose(request, index, table, num_computed)

    def _propose(self, request: str, index: int, table: Sequence[int], num_computed: int) -> None:
        """Write the draft layers' entries of the tokens that they propose, except the last."""
        size, drafts = self._engine.groups[index].block_size, self._engine.num_speculative_tokens
        end = min(num_computed + max(drafts - 1, 0), self._engine.max_model_len)
        for token in range(num_computed, end):
            block, slot = divmod(token, size)
            found = self._store.read(index, _at(table, block), slot)
            held = found.target if isinstance(found, Entry) else _GARBAGE
            self._store.write(index, _at(table, block), slot, Entry(held, _GARBAGE), request)

    def holds(self, group: int, block_id: int, name: Name) -> bool:
        """Whether the block holds the group's content of the named prefix."""
        return self._difference(group, block_id, name) is None

    def wrong_keys(self, cached: Mapping[tuple[int, Name], tuple[int, ...]]) -> Iterator[Violation]:
        """The registered keys that do not name the content of their block.

        Each is checked when it is new, and when its block was written again.
        """
        now = {(group, name, block) for (group, name), ids in cached.items() for block in ids}
        for item in sorted(now):
            group, name, block = item
            if item in self._checked and block not in self._store.written:
                continue
            wrong = self._difference(group, block, name)
            if wrong is not None and self._is_modelled(self._engine.groups[group]):
                what, divergence = wrong
                drafts = "draft" if divergence == Divergence.WRONG_DRAFTS else None
                states = self._exports(group)
                other = Defect.of(Code.KEY_NAMES_OTHER_CONTENT, layers=drafts, states=states)
                yield Violation(
                    self._sign(group, _NAMED, other, divergence),
                    f"group {group}: a block registered as {name} holds its content",
                    f"block {block}: {what}",
                    evidence=(frozenset([Block(block), Key(name)]),),
                    damages=(Block(block),),
                )
        self._checked = now
        self._store.written.clear()

    def _exports(self, index: int) -> str | None:
        return exports_states(self._engine, self._engine.groups[index])

    # --- attention ---------------------------------------------------------------------------

    def _entry(self, request: str, group: int, token: int) -> Entry:
        """The entry that the layers keep for a token."""
        draft = self._prefix(request, token + 2) if self._has_drafts[group] else ""
        return Entry(self._prefix(request, token + 1), draft)

    def _prefix(self, request: str, end: int) -> str:
        known = end <= self._num_tokens[request]
        return self._prefixes.name(request, end) if known else f"{request} past its end"

    def _write_entries(self, request: str, group: int, table: Sequence[int], tokens: range) -> None:
        for token in tokens:
            block, slot = divmod(token, self._engine.groups[group].block_size)
            self._store.write(
                group, _at(table, block), slot, self._entry(request, group, token), request
            )

    def _read_entries(
        self, request: str, index: int, table: Sequence[int], start: int, end: int
    ) -> Iterator[Violation]:
        """Read what the tokens from ``start`` to ``end`` attend to.

        If any query reads a token, the first one that is not before it does: later queries do not
        attend to earlier tokens. One wrong read per claim is enough.
        """
        group = self._engine.groups[index]
        reported: set[str] = set()
        for token in range(end):
            if not attends(max(token, start), token, group.window, group.chunk):
                continue
            wanted = self._entry(request, index, token)
            block, slot = divmod(token, group.block_size)
            block_id = _at(table, block)
            found = self._store.read(index, block_id, slot)
            claim = _SHARED if isinstance(found, Entry) and found.target == wanted.target else _READ
            if found == wanted or claim in reported:
                continue
            reported.add(claim)
            yield self._misread(request, index, token, claim, wanted, found, block_id)

    def _misread(
        self,
        request: str,
        group: int,
        token: int,
        claim: str,
        wanted: Entry,
        found: Entry | str,
        block_id: int,
    ) -> Violation:
        size, expected = self._engine.groups[group].block_size, None
        divergence = Divergence.WRONG_DRAFTS if claim == _SHARED else Divergence.UNSOUND
        if isinstance(found, str):
            defect, actual = null_read(request in self._loaded), found
            expected = Held(request, group, token // size)
        elif claim == _SHARED:
            defect, actual = (
                Defect(Code.DRAFT_ENTRY_OF_OTHER_TOKEN),
                f"the entry as of {found.draft}",
            )
        else:
            defect, actual = Defect(Code.OTHER_CONTENT_READ), found.target
        needed = wanted.draft if claim == _SHARED else wanted.target
        return Violation(
            self._sign(group, claim, defect, divergence),
            f"request {request}, group {group}: token {token} is read, the entry as of {needed}",
            f"block {token // size} of its table: {actual}",
            expected,
            (frozenset([Block(block_id), Table(request, group, token + 1)]),),
        )

    # --- Mamba states ------------------------------------------------------------------------

    def _write_states(self, request: str, index: int, table: Sequence[int]) -> None:
        """Write one state for the certain tokens, and one for each draft in the next blocks."""
        last, size = self._passes[request], self._engine.groups[index].block_size
        end = last.start + last.num_tokens
        sure = end - last.drafts
        current = INTEGERS.ceil_div(end, size) - 1
        if self._every_state:
            for block in range(last.start // size, sure // size):
                self._write_state(request, index, table, block, (block + 1) * size)
        for drafted in range(last.drafts + 1):
            self._write_state(request, index, table, current + drafted, sure + drafted)
        checkpoint = exported(self._engine, self._policy, last.start, end)
        if checkpoint is not None:
            self._write_state(request, index, table, checkpoint.block, checkpoint.tokens)
        self._running[request, index] = _at(table, current)

    def _settle_states(
        self, request: str, index: int, table: Sequence[int], last: _Pass, num_computed: int
    ) -> None:
        size, end = self._engine.groups[index].block_size, last.start + last.num_tokens
        sure, current = end - last.drafts, INTEGERS.ceil_div(end, size) - 1
        accepted = num_computed - sure
        for drafted in range(accepted + 1, last.drafts + 1):
            garbage = Entry(_GARBAGE)
            self._store.write(index, _at(table, current + drafted), 0, garbage, request)
        self._running[request, index] = _at(table, current + accepted)
        filled = INTEGERS.multiple_at_most(num_computed, size)
        if last.drafts and filled >= sure:
            self._write_state(request, index, table, filled // size - 1, filled)

    def _write_state(
        self, request: str, group: int, table: Sequence[int], block: int, length: int
    ) -> None:
        self._store.write(
            group, _at(table, block), 0, Entry(self._prefix(request, length)), request
        )

    def _read_state(
        self, request: str, index: int, table: Sequence[int], start: int
    ) -> Iterator[Violation]:
        """Read the state from which a step continues."""
        group = self._engine.groups[index]
        token = next((t for t in range(start - 1, -1, -1) if reads_state(start, t)), None)
        if token is None:
            return
        block = token // group.block_size
        block_id = self._running.get((request, index), _at(table, block))
        found, wanted = self._store.read(index, block_id, 0), self._entry(request, index, token)
        if found == Entry(ANYTHING):
            return
        if found != wanted:
            yield self._misread(request, index, token, _READ, wanted, found, block_id)
            return
        writer = self._store.computed_now_by(block_id)
        if writer not in (None, request):
            yield Violation(
                self._sign(
                    index,
                    _READ,
                    Defect.of(Code.STATE_READ_TOO_EARLY, states=self._exports(index)),
                    Divergence.UNSOUND,
                ),
                f"request {request}, group {index}: the state as of {wanted.target} is computed",
                f"request {writer} computes it in the same step",
            )

    def _difference(self, index: int, block_id: int, name: Name) -> tuple[str, Divergence] | None:
        """What a block holds instead of what its key describes; None when it holds that.

        Where only an entry of a draft layer is another, drafts are wrong, but no output is.
        """
        request, end = self._keys.request(name), self._keys.end(name)
        if request is None or end is None:
            return None
        size = self._engine.groups[index].block_size
        if self._engine.groups[index].kind is GroupKind.MAMBA:
            found = self._store.read(index, block_id, 0)
            held = found if isinstance(found, str) else found.target
            state = self._prefix(request, end)
            if held in (state, ANYTHING):
                return None
            return f"the state as of {held}", Divergence.UNSOUND
        # The name may end inside the block: the hash is that of its last hash unit.
        unit = self._engine.hash_block_size
        drafts: str | None = None
        vouched = covered_tokens(end // unit - 1, unit, self._engine.num_hash_lookahead_tokens)
        for token in range(INTEGERS.multiple_at_most(end - 1, size), end):
            found, wanted = (
                self._store.read(index, block_id, token % size),
                self._entry(request, index, token),
            )
            if isinstance(found, str):
                return found, Divergence.UNSOUND
            if found.target != wanted.target:
                return f"at token {token} {found.target}", Divergence.UNSOUND
            if is_determined(token, 1, vouched) and found.draft != wanted.draft:
                drafts = drafts or f"at token {token} a draft layer's entry as of {found.draft}"
        return None if drafts is None else (drafts, Divergence.WRONG_DRAFTS)


def _at(table: Sequence[int], block: int) -> int:
    """The block's id; `MISSING` past the table's end."""
    return table[block] if 0 <= block < len(table) else MISSING
