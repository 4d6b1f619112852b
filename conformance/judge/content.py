"""The content model: what the forward pass has written into each block, and what it reads.

Alongside the system under test, every computed token writes its identity through the block tables
that the manager returned, and every resumed step reads what its attention needs
(`spec.attention`). Reading anything but the right content is wrong whatever the hit length is; so
is a key that is registered for content that it does not describe.

- The entry of a token in an attention layer stands for the request's prefix up to that token. An
  entry of a draft layer stands for one token more, or for m more with m MTP modules
  (`spec.sharing`). Until these tokens are known it is garbage. When they are, the next step
  computes it again, and reads for draft layers what that attends to.
- A Mamba block holds one state, that of the prefix as of some token. In align mode a step writes
  the state of its end into the block that it ends in. Each draft takes one block after it, and the
  state of the accepted tokens is copied into the block that they fill. vLLM: ``mamba_utils``. A
  state that another request computes in this very step is not there yet.
- If the backend supports it, a step also exports the state of a token inside its chunk
  (`conformance.playing.checkpoints`).
- A copy that the manager requests is made before the step computes: it copies what earlier steps
  have left in the block.
- Steps execute in the order in which they are scheduled, whenever their results arrive. So a step
  is played when it is scheduled, with the tables of that moment: what is scheduled later writes
  later. It starts after the last draft that was right, also where the scheduler does not know it.
- After a hit, a window outside the prefix cache has no entries of it. Its last tokens are computed
  again, for such windows alone: other groups keep what they have. What is computed again sees no
  token of the window before them, which is how such models are made (vLLM: ``replay_start``); what
  comes after the hit sees all of its window. What draft layers propose before its end is nothing
  that they keep.
- What a KV connector loads is there when the load is done. What it reports invalid is garbage, and
  so is what was computed from it. The entries of rejected drafts, and
  those that draft layers wrote while they proposed, are garbage and must be overwritten before they
  are read.

Where steps, loads and drafts write is decided here alone. What is written is a value of one of two
domains: here names, and beside them tensors in `conformance.numeric.computed_replay`, which writes
the same places (`_write_entries` to `_spoil_state`).

What is not modelled, and what a slot should hold: `conformance.judge.content_entries`. What keys
promise of it: `conformance.judge.content_keys`.

It is longer than other modules, as it has all that happens to content.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.findings.parts import Block, Table
from hitproof.conformance.findings.violations import Violation
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.content_entries import DueEntries, Sign
from hitproof.conformance.judge.content_keys import KeyedContent
from hitproof.conformance.judge.content_store import (
    ANYTHING,
    INVALID_LOAD,
    MISSING,
    ContentStore,
    Entry,
)
from hitproof.conformance.playing.checkpoints import exported, exports_states
from hitproof.conformance.playing.expectations import Held
from hitproof.conformance.subject.managers import Observation, Tables
from hitproof.spec.attention import attends, reads_state
from hitproof.spec.claims import Divergence
from hitproof.spec.groups import Group, GroupKind
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.sharing import is_determined
from hitproof.spec.terms import ceil_div

_READ = "hit_has_every_block_attention_reads"
_SHARED = "reused_content_is_determined_by_the_hit"
_GARBAGE = "garbage of drafts"


def null_read(loaded: bool, rejected: bool = False, failed: bool = False) -> Defect:
    """A read of a null or missing block.

    ``loaded`` is whether a connector wrote tokens of the request, ``failed`` whether some of them
    are of a load that has failed, ``rejected`` whether a step was planned as if drafts in flight
    were right that are rejected.
    """
    how = {"failed-load": failed, "rejection": rejected, "load": loaded}
    after = next((each for each, is_so in how.items() if is_so), None)
    return Defect.of(Code.NULL_BLOCK_READ, after=after)


@dataclass(frozen=True)
class _Pass:
    """A forward pass with unsettled drafts: tokens from ``start``, of which drafts are the last.

    Draft layers compute those from ``first`` on. ``known`` tokens are known when it starts.
    """

    first: int
    start: int
    num_tokens: int
    known: int
    tables: Tables

    @property
    def drafts(self) -> int:
        """How many drafts it verifies."""
        return max(0, self.start + self.num_tokens - self.known)


class ContentModel:
    """The content of one manager's blocks.

    ``sign`` makes the signature of a violation, of a group (an index), a claim, a defect and its
    class.
    ``every_state`` says that a step writes the state of each block that it fills, as vLLM did
    before it had a ``mamba_cache_mode``; ``policy`` is how far past a hit lookups may peek;
    ``replays`` whether the content of windows outside the prefix cache is modelled.
    """

    def __init__(
        self,
        engine: EngineConfiguration,
        requests: Mapping[str, RequestInput],
        sign: Sign,
        every_state: bool = False,
        policy: LookaheadHorizon = LookaheadHorizon.HASHED,
        replays: bool = False,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._sign = sign
        self._every_state = every_state
        self._due = DueEntries(engine, requests, replays)
        self._store = ContentStore()
        self.keys = KeyedContent(engine, requests, self._due, self._store, sign)
        self._passes: dict[str, _Pass] = {}
        # How many of a request's tokens have final entries of draft layers, where not all have.
        self._final: dict[str, int] = {}
        # The block that has the running state; none before a request's first step.
        self._running: dict[tuple[str, int], int] = {}
        self._loaded: set[str] = set()
        self._failed: set[str] = set()
        self._planned: dict[str, int] = {}
        # The tokens that are computed again for windows outside the prefix cache alone.
        self._replayed: dict[str, range] = {}

    @property
    def store(self) -> ContentStore:
        """What the blocks hold."""
        return self._store

    def new_step_starts(self) -> None:
        """A step starts: what earlier steps computed can be read."""
        self._store.new_step_starts()

    def observed(self, seen: Observation) -> None:
        """Forget what is in blocks without a holder and a key: it may be overwritten."""
        used = {block for ids in seen.cached.values() for block in ids}
        self._store.keep_only(used.union(seen.ref_counts))

    def copy(self, source: int, target: int) -> None:
        """The worker copies a block before the step computes."""
        self._store.copy(source, target)

    def free(self, request: str) -> None:
        """The request gives up its blocks."""
        self._passes.pop(request, None)
        self._final.pop(request, None)
        self._loaded.discard(request)
        self._failed.discard(request)
        self._planned.pop(request, None)
        self._replayed.pop(request, None)
        for group in range(len(self._engine.groups)):
            self._running.pop((request, group), None)

    def replay(self, request: str, tokens: range) -> None:
        """These tokens of its hit are computed again, for windows outside the prefix cache alone.

        No entries of such windows are there of the tokens before them.
        """
        self._replayed[request] = tokens

    def go_on(self, before: str, request: str, tables: Tables, start: int) -> None:
        """The session of ``before`` goes on as ``request`` with ``start`` tokens computed.

        Its state is that as of these, wherever one of its blocks has it, else the running one.
        """
        for index, table in enumerate(tables):
            running = self._running.get((before, index))
            due = Entry(self._due.prefix(request, start)) if start else None
            held = (block for block in table if self._store.read(index, block, 0) == due)
            if running is not None and running in table:
                self._running[request, index] = next(held, running)
        self.free(before)

    def load(self, request: str, tables: Tables, start: int, end: int, known: int) -> None:
        """A connector wrote the tokens from ``start`` to ``end``; the request has ``known`` tokens.

        If these are all its tokens, the last one is recomputed. A Mamba layer then needs the state
        before it, which only the connector can have kept, so that state is not judged.
        """
        self._loaded.add(request)
        for index, (group, table) in enumerate(zip(self._engine.groups, tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                self._load_state(request, index, table, end, known)
                self._running[request, index] = _at(table, (end - 1) // group.block_size)
            else:
                self._write_entries(request, index, table, range(start, end))
                for place in range(start // group.block_size, (end - 1) // group.block_size + 1):
                    self._store.fill(_at(table, place))  # connectors write whole blocks

    def spoil(self, request: str, tables: Tables, start: int, end: int, what: str) -> None:
        """The tokens from ``start`` to ``end`` have ``what`` instead of their entries."""
        if what == INVALID_LOAD:
            self._failed.add(request)
        for index, (group, table) in enumerate(zip(self._engine.groups, tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                self._spoil_state(request, index, table, (end - 1) // group.block_size, what)
            else:
                self._spoil_entries(request, index, table, range(start, end), what)

    def finds_states(self, request: str, tables: Tables, column: int) -> None:
        """The model runner finds the states of a request in this column, in the next step."""
        for index, (group, table) in enumerate(zip(self._engine.groups, tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                self._running[request, index] = _at(table, column)

    def planned(self, request: str, num_computed: int) -> None:
        """A step is planned as if ``num_computed`` tokens were computed, with all drafts right."""
        self._planned[request] = max(self._planned.get(request, 0), num_computed)

    def compute(
        self, request: str, tables: Tables, start: int, num_new: int, known: int
    ) -> Iterator[Violation]:
        """The forward pass on ``num_new`` tokens from ``start``; what it reads wrong.

        ``known`` counts tokens that steps in flight sample. Those from there on are drafts, assumed
        to be right until `settle` is called.
        """
        end, first = start + num_new, self._final.pop(request, start)
        self._passes[request] = _Pass(first, start, num_new, known, tables)
        judged = [
            (index, group, tables[index])
            for index, group in enumerate(self._engine.groups)
            if self._due.is_modelled(group)
        ]
        states = [item for item in judged if item[1].kind is GroupKind.MAMBA]
        attention = [item for item in judged if item[1].kind is not GroupKind.MAMBA]
        # Blocks that a state moves out of may be written in the same step.
        for index, _, table in states:
            yield from self._read_state(request, index, table, start)
        for index, _, table in states:
            self._write_states(request, index, table)
        again = self._replayed.get(request, range(0))
        for index, group, table in attention:
            written = first if self._due.has_drafts[index] else start
            if group.prefix_cacheable:
                written = max(written, again.stop)
            self._write_entries(request, index, table, range(written, end))
        for index, _, table in attention:
            yield from self._read_entries(request, index, table)

    def settle(self, request: str, num_computed: int, proposes: bool = True) -> None:
        """The drafts of the last pass are settled: tokens from ``num_computed`` on are garbage.

        ``proposes`` is whether draft layers propose others after it.
        """
        last = self._passes.pop(request, None)
        if last is None:
            return
        # A step that has computed all that was known samples a token.
        known = max(last.known, num_computed + 1)
        final = next(
            (
                token
                for token in range(last.first, num_computed)
                if not is_determined(token, self._due.lookahead, known)
            ),
            num_computed,
        )
        if final < num_computed:
            self._final[request] = final
        for index, (group, table) in enumerate(zip(self._engine.groups, last.tables, strict=True)):
            if group.kind is GroupKind.MAMBA:
                self._settle_states(request, index, table, last, num_computed)
                continue
            # Drafts come after what the pass started from.
            what = INVALID_LOAD if num_computed < last.start else _GARBAGE
            tokens = range(num_computed, last.start + last.num_tokens)
            self._spoil_entries(request, index, table, tokens, what)
            if self._due.has_drafts[index]:
                self._spoil_drafts(request, index, table, range(final, num_computed), True)
                if self._due.lookahead == 1 and proposes:
                    self._propose(request, index, table, num_computed)

    def _propose(self, request: str, index: int, table: Sequence[int], num_computed: int) -> None:
        """Write the draft layers' entries of the tokens that they propose, except the last."""
        drafts, start = self._engine.num_speculative_tokens, num_computed
        end = min(num_computed + max(drafts - 1, 0), self._engine.max_model_len)
        if self._engine.groups[index].prefix_cacheable:
            start = max(start, self._replayed.get(request, range(0)).stop)
        self._spoil_drafts(request, index, table, range(start, end), False)

    # --- what is written ---------------------------------------------------------------------

    def _write_entries(self, request: str, group: int, table: Sequence[int], tokens: range) -> None:
        """Entries of tokens that are computed or loaded."""
        for token in tokens:
            self._write(request, group, table, token, self._due.entry(request, group, token))

    def _spoil_entries(
        self, request: str, group: int, table: Sequence[int], tokens: range, what: str
    ) -> None:
        """Other entries of tokens, in all layers."""
        entry = Entry(what, what if self._due.has_drafts[group] else "")
        for token in tokens:
            self._write(request, group, table, token, entry)

    def _spoil_drafts(
        self, request: str, group: int, table: Sequence[int], tokens: range, computed: bool
    ) -> None:
        """Entries of drafts in the draft layers; target layers have ``computed`` theirs, or not."""
        for token in tokens:
            held = self._due.entry(request, group, token).target
            if not computed:
                block, slot = divmod(token, self._engine.groups[group].block_size)
                found = self._store.read(group, _at(table, block), slot)
                held = found.target if isinstance(found, Entry) else _GARBAGE
            self._write(request, group, table, token, Entry(held, _GARBAGE))

    def _write(
        self, request: str, group: int, table: Sequence[int], token: int, entry: Entry
    ) -> None:
        block, slot = divmod(token, self._engine.groups[group].block_size)
        self._store.write(group, _at(table, block), slot, entry, request)

    def _write_state(
        self, request: str, group: int, table: Sequence[int], block: int, length: int
    ) -> None:
        """The state as of ``length`` tokens, which the last pass computes."""
        held = self._due.prefix(request, length)
        self._store.write(group, _at(table, block), 0, Entry(held), request)

    def _load_state(
        self, request: str, group: int, table: Sequence[int], end: int, known: int
    ) -> None:
        """The state as of ``end`` tokens, or that before the last of all ``known`` ones."""
        block_id = _at(table, (end - 1) // self._engine.groups[group].block_size)
        held = self._due.prefix(request, end) if end < known else ANYTHING
        self._store.write(group, block_id, 0, Entry(held), request, loaded=True)

    def _spoil_state(
        self, request: str, group: int, table: Sequence[int], block: int, what: str
    ) -> None:
        """Something else than a state."""
        self._store.write(group, _at(table, block), 0, Entry(what), request)

    # --- attention ---------------------------------------------------------------------------

    def _read_entries(self, request: str, index: int, table: Sequence[int]) -> Iterator[Violation]:
        """Read what the tokens of the pass attend to.

        If any query reads a token, the first one that is not before it does: later queries do not
        attend to earlier tokens. One wrong read per claim and class is enough.
        """
        group, now = self._engine.groups[index], self._passes[request]
        reported: set[tuple[str, Divergence]] = set()
        for token in range(now.start + now.num_tokens):
            first = now.first if self._due.has_drafts[index] else now.start
            read = self._reads(request, group, now.start, token)
            if not read and not self._reads(request, group, first, token):
                continue
            wanted = self._due.entry(request, index, token)
            block, slot = divmod(token, group.block_size)
            block_id = _at(table, block)
            found = self._store.read(index, block_id, slot)
            same = isinstance(found, Entry) and found.target == wanted.target
            claim = _SHARED if same else _READ
            divergence = Divergence.UNSOUND if read and not same else Divergence.WRONG_DRAFTS
            if found == wanted or (claim, divergence) in reported:
                continue
            reported.add((claim, divergence))
            where = (index, token, block_id)
            yield self._misread(request, where, claim, divergence, wanted, found)

    def _reads(self, request: str, group: Group, start: int, token: int) -> bool:
        """Whether a query of the request's pass from ``start`` on reads the token."""
        now, again = self._passes[request], self._replayed.get(request, range(0))
        query = max(token, start)
        if not group.prefix_cacheable and token < again.start and query < again.stop:
            query = again.stop  # the first that sees all of its window
        end = now.start + now.num_tokens
        return query < end and bool(attends(query, token, group.window, group.chunk))

    def _misread(
        self,
        request: str,
        where: tuple[int, int, int],
        claim: str,
        divergence: Divergence,
        wanted: Entry,
        found: Entry | str,
    ) -> Violation:
        """What is read wrong ``where``: in which group, at which token, from which block."""
        group, token, block_id = where
        size, expected = self._engine.groups[group].block_size, None
        if isinstance(found, str):
            rejected = self._passes[request].start < self._planned.get(request, 0)
            failed = request in self._failed
            defect, actual = null_read(request in self._loaded, rejected, failed), found
            expected = Held(request, group, token // size)
        elif claim == _SHARED:
            drafts = "drafts" if found.draft == _GARBAGE else None
            defect = Defect.of(Code.DRAFT_ENTRY_OF_OTHER_TOKEN, of=drafts)
            actual = f"the entry as of {found.draft}"
        else:
            of = "invalid-load" if found.target == INVALID_LOAD else None
            defect, actual = Defect.of(Code.OTHER_CONTENT_READ, of=of), found.target
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
        current = ceil_div(end, size) - 1
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
        sure, current = end - last.drafts, ceil_div(end, size) - 1
        accepted = num_computed - sure
        for drafted in range(accepted + 1, last.drafts + 1):
            self._spoil_state(request, index, table, current + drafted, _GARBAGE)
        self._running[request, index] = _at(table, current + accepted)
        filled = num_computed // size * size
        if last.drafts and filled >= sure:
            self._write_state(request, index, table, filled // size - 1, filled)

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
        found, wanted = self._store.read(index, block_id, 0), self._due.entry(request, index, token)
        if found == Entry(ANYTHING):
            return
        if found != wanted:
            where = (index, token, block_id)
            yield self._misread(request, where, _READ, Divergence.UNSOUND, wanted, found)
            return
        writer = self._store.computed_now_by(block_id)
        if writer not in (None, request):
            yield Violation(
                self._sign(
                    index,
                    _READ,
                    Defect.of(
                        Code.STATE_READ_TOO_EARLY, states=exports_states(self._engine, group)
                    ),
                    Divergence.UNSOUND,
                ),
                f"request {request}, group {index}: the state as of {wanted.target} is computed",
                f"request {writer} computes it in the same step",
            )


def _at(table: Sequence[int], block: int) -> int:
    """The block's id; `MISSING` past the table's end."""
    return table[block] if 0 <= block < len(table) else MISSING
