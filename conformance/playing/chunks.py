"""How far a step computes a request: as vLLM's scheduler cuts prompts into chunks."""

from dataclasses import dataclass

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.playing.checkpoints import exported
from hitproof.spec.releases.fine import FineTail, tail_boundary
from hitproof.spec.releases.horizons import LookaheadHorizon


@dataclass(frozen=True)
class Prefill:
    """A request that is to be computed, in tokens.

    Attributes:
        computed: what is computed already.
        num_prompt_tokens: its prompt.
        num_tokens: prompt and output so far.
        junction: the end of the prefix that was seen to be shared, 0 for none.
    """

    computed: int
    num_prompt_tokens: int
    num_tokens: int
    junction: int


@dataclass(frozen=True)
class Chunks:
    """The chunks of an engine whose releases keep ends of prompts by ``tail`` and ``horizon``."""

    engine: EngineConfiguration
    tail: FineTail
    horizon: LookaheadHorizon

    def usual(self, num_new: int, request: Prefill) -> int:
        """How many of at most ``num_new`` tokens to compute, as states and drafts require."""
        num_new = self._by_states(num_new, request)
        # A chunk that leaves too few known tokens for its draft layers is made shorter. vLLM:
        # ``Scheduler._reserve_prefill_lookahead``.
        rest = request.num_tokens - request.computed - num_new
        ahead = self.engine.num_prefill_lookahead
        return max(0, num_new - (ahead - rest)) if 0 < rest < ahead else num_new

    def _by_states(self, num_new: int, request: Prefill) -> int:
        """How many of ``num_new`` tokens to compute as Mamba's states require.

        vLLM: ``Scheduler._mamba_block_aligned_split``. A state is cached for the end of a block
        only, so a chunk ends on a block edge until the last whole block of the request; with
        EAGLE, whose lookups drop a block, until the one before. A chunk that starts inside a block
        stops at its end, or the block would keep an earlier state; up to 0.27 vLLM ran past it.
        """
        size, computed = self.engine.mamba_block_size, request.computed
        if size is None or computed >= max(request.num_prompt_tokens, request.num_tokens - 1):
            return num_new
        if self.tail is not FineTail.NONE:
            return self._fine(num_new, request, size)
        if computed % size:
            return min(num_new, size - computed % size)
        last = request.num_tokens // size * size
        if self.engine.use_eagle_block_drop:
            last = max(last - size, 0)
        if computed + num_new < last:
            return num_new // size * size
        return last - computed if computed < last else num_new

    def _fine(self, num_new: int, request: Prefill, size: int) -> int:
        """The same where hits may end inside blocks, as in vLLM from 0.28 on.

        A chunk also ends where a state is kept inside a block: for the prompt's end, unless the
        chunk exports that state, and for a prefix that was seen to be shared.
        """
        engine, unit, prompt = self.engine, self.engine.hash_block_size, request.num_prompt_tokens
        computed = request.computed
        end, prefill_end = computed + num_new, max(prompt, request.num_tokens - 1)
        if end < prefill_end:
            aligned = end // size * size
            end = aligned if aligned > computed or size <= engine.max_chunk else end
        stops = [request.junction]
        if not (engine.keeps_shared_states and request.junction <= prompt):
            stops = [computed + (request.junction - computed) // size * size]
        if request.junction >= end:
            stops = []
        if computed + num_new < prefill_end or not exported(
            engine, self.horizon, computed, computed + num_new, prefill_end
        ):
            last = self._kept(request.num_tokens, size)
            tail = self._kept(prompt, unit)
            stops += [last, tail] if last < tail < prompt else [last]
            stops += [(computed // size + 1) * size] if computed % size else []
        end = min((stop for stop in stops if computed < stop < end), default=end)
        return max(end - computed, 0)

    def _kept(self, num_tokens: int, size: int) -> int:
        """The position of the state that is kept for the end of ``num_tokens`` tokens."""
        lookahead = size if self.engine.use_eagle_block_drop else 0
        ahead = self.engine.num_hash_lookahead_tokens
        return int(tail_boundary(self.tail, self.horizon, num_tokens, lookahead, size, ahead))
