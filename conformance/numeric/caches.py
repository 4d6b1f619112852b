"""Where a model's layers keep what they computed: without blocks, and in the blocks of a pool."""

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from hitproof.conformance.numeric.model import ROUNDS, WIDTH, Answer, Layer, Model, Token

NULL, MISSING = 0, -1
"""The null block, and what stands for a position that a block table does not have."""


class Uncached:
    """One request computed from its first token in one pass: what every other way must equal.

    Attributes:
        entries: those of each layer that attends, a token a row.
        states: those of each recurrent layer after each token; the first is that before any.
        answer: logits and hidden states of every token.
    """

    def __init__(self, model: Model, tokens: Sequence[Token]) -> None:
        self.entries: dict[Layer, Tensor] = {}
        self.states: dict[Layer, Tensor] = {}
        self.answer: Answer = model.run(tokens, self, 0, len(tokens) - model.modules)

    def write(self, layer: Layer, first: int, entries: Tensor) -> None:
        """See `Cache`."""
        assert first == 0
        self.entries[layer] = entries

    def read(self, layer: Layer, end: int) -> Tensor:
        """See `Cache`."""
        return self.entries[layer][:end]

    def state(self, layer: Layer) -> Tensor:
        """See `Cache`."""
        del layer
        return empty_state()

    def keep(self, layer: Layer, states: Tensor) -> None:
        """See `Cache`."""
        self.states[layer] = torch.cat([empty_state()[None], states])


def empty_state() -> Tensor:
    """The state of a recurrence before any token."""
    return torch.zeros(WIDTH, WIDTH, dtype=torch.float64)


class Pages:
    """The memory of a pool: blocks by their ids, each of one page for every layer of a group.

    As in vLLM, groups share it: the same page holds a layer of one group or of another. What was
    never written, and what is poisoned, is NaN. The null block is never written.
    """

    def __init__(self, model: Model, num_blocks: int) -> None:
        self.model = model
        entries = [2 * WIDTH * group.block_size for group in model.groups]
        shape = ROUNDS + model.modules, num_blocks, max(*entries, WIDTH * WIDTH)
        self._memory = torch.full(shape, math.nan, dtype=torch.float64)
        self._before: dict[int, Tensor] = {}
        self._replaced: dict[int, Tensor] = {}
        """What the targets of this step's copies held before."""

    def new_step_starts(self) -> None:
        """Forget what blocks held before the last step: from now on its results are read."""
        self._before.clear()
        self._replaced.clear()

    def poison(self, block: int) -> None:
        """Overwrite a block with NaN: what it held can no longer be read."""
        self._memory[:, block] = math.nan
        self._before.pop(block, None)
        self._replaced.pop(block, None)

    def copy(self, source: int, target: int) -> None:
        """Copy a block as it was before this step; the copy counts as made before it, too.

        But no copy of a step is of what another one of it has written.
        """
        held = self._replaced.get(source, self._was(source)).clone()
        self._replaced.setdefault(target, self._was(target).clone())
        self._memory[:, target] = held
        self._before.pop(target, None)

    def arrived(self, blocks: Iterable[int]) -> None:
        """What was written into the blocks was there before the step began."""
        for block in blocks:
            self._before.pop(block, None)

    def write(
        self, layer: Layer, table: Sequence[int], tokens: range, entries: Tensor | float
    ) -> None:
        """Write the entries of some tokens, one a row, by a block table."""
        size = self.model.groups[layer.group].block_size
        blocks = [at(table, token // size) for token in tokens]
        there = [place for place, block in enumerate(blocks) if block not in (NULL, MISSING)]
        for block in {blocks[place] for place in there}:
            self._touch(block)
        if len(there) < len(blocks) and isinstance(entries, Tensor):
            entries = entries[there]
        ids = torch.tensor([blocks[place] for place in there], dtype=torch.long)
        slots = torch.tensor([tokens[place] % size for place in there], dtype=torch.long)
        self.slots(layer)[ids, slots] = entries

    def slots(self, layer: Layer) -> Tensor:
        """The entries of a layer that attends, by block and slot."""
        size = self.model.groups[layer.group].block_size
        pages = self._memory[layer.place, :, : size * 2 * WIDTH]
        return pages.view(-1, size, 2 * WIDTH)

    def write_state(self, layer: Layer, block: int, state: Tensor | float) -> None:
        """Write the state that a block keeps of a recurrent layer."""
        if block not in (NULL, MISSING):
            self._touch(block)
            self._memory[layer.place, block, : WIDTH * WIDTH].view(WIDTH, WIDTH)[:] = state

    def state(self, layer: Layer, block: int) -> Tensor:
        """The state that a block kept before this step, as all requests of a step read theirs."""
        if block in (NULL, MISSING):
            return torch.full((WIDTH, WIDTH), math.nan, dtype=torch.float64)
        return self._was(block)[layer.place, : WIDTH * WIDTH].view(WIDTH, WIDTH).clone()

    def _was(self, block: int) -> Tensor:
        return self._before.get(block, self._memory[:, block])

    def _touch(self, block: int) -> None:
        if block not in self._before:
            self._before[block] = self._memory[:, block].clone()


class Paged:
    """The cache of one pass of one request, by its block tables.

    A recurrent group continues from the state in the block that ``states`` names; the empty state
    where it names none.

    Attributes:
        kept: for each recurrent layer, the states after each token of the pass.
    """

    def __init__(
        self, pages: Pages, tables: Sequence[Sequence[int]], states: Mapping[int, int]
    ) -> None:
        self._pages = pages
        self._tables = tables
        self._states = states
        self.kept: dict[Layer, Tensor] = {}

    def write(self, layer: Layer, first: int, entries: Tensor) -> None:
        """See `Cache`."""
        tokens = range(first, first + len(entries))
        self._pages.write(layer, self._tables[layer.group], tokens, entries)

    def read(self, layer: Layer, end: int) -> Tensor:
        """See `Cache`."""
        size = self._pages.model.groups[layer.group].block_size
        table = self._tables[layer.group]
        blocks = [at(table, place) for place in range(math.ceil(end / size))]
        # The null block is never written, so it can stand for those that are missing.
        ids = torch.tensor([max(block, NULL) for block in blocks], dtype=torch.long)
        return self._pages.slots(layer)[ids].reshape(-1, 2 * WIDTH)[:end]

    def state(self, layer: Layer) -> Tensor:
        """See `Cache`."""
        block = self._states.get(layer.group)
        return empty_state() if block is None else self._pages.state(layer, block)

    def keep(self, layer: Layer, states: Tensor) -> None:
        """See `Cache`."""
        self.kept[layer] = states


def at(table: Sequence[int], place: int) -> int:
    """The id of a block in a table; `MISSING` past its end."""
    return table[place] if 0 <= place < len(table) else MISSING
