"""Registration: which blocks of a request a subject's producer registers."""

from collections.abc import Sequence
from typing import Protocol

from hitproof.conformance.histories.schema import EngineConfiguration
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.subject.lookups import HorizonSubject
from hitproof.conformance.subject.managers import Manager
from hitproof.spec.releases.policies import EagleGroups


class MaskSubject(Protocol):
    """Registers blocks under dense retention."""

    def registered(
        self, configuration: Configuration, chunks: Sequence[int], alone: bool = False
    ) -> list[bool]:
        """Which full blocks the producer registers for a prompt of ``chunks[-1]`` tokens.

        It is computed in chunks that end at ``chunks``, ascending. The group stands beside full
        attention, as in `retained`, or ``alone``. ``interval`` is the retention interval.
        """

    def stored(self, configuration: Configuration, end: int) -> list[bool]:
        """Which blocks a KV connector would store of a request that it has ``end`` blocks of.

        The result has one entry for each of the ``num_blocks``.
        """

    def stored_unaligned(self, configuration: Configuration, alignment: int | None) -> list[bool]:
        """The same where hits end at multiples of an ``alignment`` in tokens that cuts blocks.

        None where hits may end anywhere.
        """

    def registered_when_final(
        self,
        configuration: Configuration,
        num_tokens: int,
        not_final: int,
        alone: bool,
        interval: int | None = None,
    ) -> list[bool]:
        """Which full blocks the producer registers of a prompt of ``num_tokens`` tokens.

        A draft model recomputes the last ``not_final`` tokens. The group stands beside full
        attention, as in `retained`, or ``alone``.
        """


class RetentionSubject(HorizonSubject, Protocol):
    """Registers blocks under sparse retention."""

    def retained(self, configuration: Configuration, num_tokens: int, interval: int) -> list[bool]:
        """Which full blocks the producer registers for a prompt of ``num_tokens`` tokens.

        The group stands beside a full-attention group whose block size is the alignment, under
        a retention ``interval`` in tokens, 0 for the latest boundary only.
        """


class ServingSubject(HorizonSubject, Protocol):
    """Serves prompts one after another, from what it has registered of those before."""

    def hits(
        self, configuration: Configuration, prompts: Sequence[Sequence[int]], interval: int | None
    ) -> list[int]:
        """The hit of each prompt (its token ids), in tokens, when they come in this order.

        Each is looked up, computed and freed, and nothing is evicted. A prompt is computed in one
        chunk; with Mamba, one ends at the shared prefix that its lookup reported, and one at the
        last boundary before its last token, or with EAGLE at the boundary before.
        The groups are the configuration's `layout`; ``interval`` as in `retained`, or None for
        dense retention.
        """

    @property
    def keeps_every_state(self) -> bool:
        """Whether a Mamba group keeps the state of every block that a step fills.

        Otherwise it keeps that of the step's end. vLLM: before it had a ``mamba_cache_mode``.
        """

    @property
    def eagle_groups(self) -> EagleGroups:
        """Which groups drop a lookahead block."""

    def manager(self, engine: EngineConfiguration) -> Manager:
        """A whole manager with an empty cache."""
