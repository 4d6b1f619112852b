"""What the gate has to settle: each claim on each configuration and layout."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hitproof.conformance.checks.registry import CHECKS, is_about
from hitproof.conformance.comparison.histories import ManagerRun
from hitproof.conformance.comparison.schedules import ScheduleRun
from hitproof.conformance.findings.footprints import Footprint, place_of
from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.histories.plays import Play, plays
from hitproof.conformance.ledger.ledger import Entry
from hitproof.conformance.ledger.records import Record
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, layouts, of_tiers
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.claims import Status
from hitproof.spec.releases.fine import HitGranularity


@dataclass(frozen=True)
class Obligation:
    """One claim on one configuration, and how it ended.

    Attributes:
        claim: the claim.
        configuration: the configuration or layout, which holds the bound.
        status: proved up to the bound, refuted, or inconclusive.
        paths: runs of the target that were compared with the spec.
        states: cache states that those runs cover.
        detail: why it is inconclusive.
        signatures: what was found where it is refuted. Where nothing is booked under the claim,
            these are the divergences of other claims that make its sentence false.
        runs: runs of the target on whole cache states, which answer as the paths do.
    """

    claim: str
    configuration: Configuration | Layout
    status: Status
    paths: int
    states: int
    detail: str
    signatures: tuple[Signature, ...] = ()
    runs: int = 0


@dataclass(frozen=True)
class Task:
    """One check on one configuration or layout; it settles every claim that shares the check."""

    claim: str
    configuration: Configuration | Layout

    @property
    def entry(self) -> tuple[str, str]:
        """The entry point that it runs."""
        return CHECKS[self.claim].__name__, self.configuration.kinds


@dataclass(frozen=True)
class Played:
    """One history, and what became of it.

    Attributes:
        play: the history.
        steps: its steps that were played, each judged.
        lookups: lookups among them.
        signatures: what was found.
        footprints: how far each of these reaches.
        unsettled: why it could not be judged, "" when it could.
        left_out: whether it asks for what the release does not have, so that nothing is judged.
        refused: why start-up refuses the deployment of a scheduler history, "" if it does not.
        run: what was observed, if that was asked for; of a history of a manager.
        schedule: the same of a scheduler history.
    """

    play: Play
    steps: int = 0
    lookups: int = 0
    signatures: tuple[Signature, ...] = ()
    footprints: tuple[Footprint, ...] = ()
    unsettled: str = ""
    left_out: bool = False
    refused: str = ""
    run: ManagerRun | None = None
    schedule: ScheduleRun | None = None

    @property
    def reason(self) -> str:
        """Why it could not be judged, without its name, so that others have the same reason."""
        return self.unsettled.removeprefix(f"{self.play.describe()}: ")


def tasks(profile: Profile, entries: Sequence[Entry]) -> list[Task]:
    """What the gate runs: each check on each configuration, ledger configurations included."""
    representatives = list({check: claim for claim, check in CHECKS.items()}.values())
    several = *layouts(profile), *of_tiers(profile)
    judged: list[Configuration | Layout] = [*configurations(profile), *several]
    wanted = [Task(c, j) for j in judged for c in representatives if is_about(c, j)]
    shared = {CHECKS[claim]: claim for claim in representatives}
    wanted += [
        Task(shared[CHECKS[entry.signature.claim]], entry.configuration)
        for entry in entries
        if not isinstance(entry.configuration, Play)
    ]
    return list(dict.fromkeys(wanted))


def histories(
    profile: Profile, entries: Sequence[Entry], granularity: str, record: Record | None = None
) -> list[Play]:
    """What the gate replays, the ledger's histories first.

    ``granularity`` is where hits of the target may end, a value of `HitGranularity`;
    ``record`` is as for `of_entries`.
    """
    known = (play for _, play in of_entries(entries, record))
    return list(dict.fromkeys([*known, *plays(profile, granularity == HitGranularity.FINE)]))


def of_entries(
    entries: Sequence[Entry], record: Record | None = None
) -> list[tuple[Signature, Play]]:
    """The histories of a ledger, each with the signature of the entry that it is replayed for.

    Where ``record`` says that an entry's divergence shows in other histories than its own, one of
    those stands for it: one entry speaks of releases that behave differently.
    """
    own = [(e.signature, e.configuration) for e in entries if isinstance(e.configuration, Play)]
    if record is None:
        return own
    written = {place_of(play): play for _, play in own}
    return [(s, record.history(s, play, written)) for s, play in own]


def unsettled(task: Task, reason: str) -> list[Obligation]:
    """The obligations of a task that ended in nothing."""
    claims: Iterable[str] = (c for c, run in CHECKS.items() if run is CHECKS[task.claim])
    return [
        Obligation(claim, task.configuration, Status.INCONCLUSIVE, 0, 0, reason) for claim in claims
    ]
