"""What a run of the gate is about, made once by a command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import Entry
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.gate.proved import Proved
from hitproof.vllm_integration.gate.selection import EVERYTHING, Wanted
from hitproof.vllm_integration.sandbox.driver import Limits
from hitproof.vllm_integration.targets.target import Target


@dataclass(frozen=True)
class Run:
    """What is judged, by what, and with which means.

    Attributes:
        target: the target.
        profile: how much is covered.
        entries: known divergences.
        limits: what the target's workers run with.
        policies: values of policies to judge by, by name; the others are those that the target
            shows.
        record: the footprints that known divergences are compared with.
        remedy: how to make a record where there is none.
        accepted_reads: what the target reads of its inputs is asked for, too, and these are
            accepted unseen, for their reasons; None if it is not.
        keep_facts: whether what the target did is asked for, too.
        also: histories to be replayed besides.
        cases: entries whose cases are judged as well; what diverges there is not known.
        shows_known: whether known divergences are shown. They stay as they were found,
            neither shrunk nor demonstrated, if not.
        wanted: what the run is restricted to.
        proved: what is proved for all lengths already, which gets more.
    """

    target: Target
    profile: Profile = Profile.DEFAULT
    entries: Sequence[Entry] = ()
    limits: Limits = Limits()
    policies: Mapping[str, str] = field(default_factory=dict)
    record: Record | None = None
    remedy: str = ""
    accepted_reads: Mapping[str, str] | None = None
    keep_facts: bool = False
    also: Sequence[Play] = ()
    cases: Sequence[Entry] = ()
    shows_known: bool = True
    wanted: Wanted = EVERYTHING
    proved: Proved = field(default_factory=Proved)
