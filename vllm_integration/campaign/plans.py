"""The parts of a kind of campaign: its jobs by rounds, and the summary of their results."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from hitproof.vllm_integration.campaign.jobs import Job, Result
from hitproof.vllm_integration.campaign.serving import Place, Setting, Work
from hitproof.vllm_integration.campaign.trees import content_of
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target
from hitproof.vllm_integration.verdict import Verdict


@dataclass(frozen=True)
class Table:
    """A table of a report: its title, the names of its columns, and its rows."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass
class Summary:
    """What the results say together.

    Attributes:
        about: in a sentence or two.
        tables: the details.
        new: what the ledger and BUGS do not know, in words.
        files: what can be used elsewhere, such as histories, by its path below the results.
        cannot: why something could not be judged, and how often.
        gains: what a job added to those before it in the campaign's order, by its name: branches
            that nothing had run, causes that nothing had shown.
    """

    about: str
    tables: list[Table] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    cannot: Counter[str] = field(default_factory=Counter)
    gains: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Inconclusive is never a pass."""
        if self.new:
            return Verdict.DIVERGES
        return Verdict.INCONCLUSIVE if self.cannot else Verdict.CONFORMS


Ended: TypeAlias = Sequence[tuple[Job, Result]]
"""Jobs and their results, in the campaign's order."""
Rounds: TypeAlias = Generator[list[Job], list[Result], None]
"""Gives the jobs of a round, and is sent their results, in order: so that what comes next is a
function of them alone."""


@dataclass(frozen=True)
class Given:
    """What a campaign is about.

    Attributes:
        targets: its targets by what their trees contain; a plan may add others.
        setting: how jobs are run.
        options: further choices, by name.
        facts: what was asked of the target before.
    """

    targets: dict[str, Target]
    setting: Setting
    options: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


class CampaignError(Exception):
    """There is no such campaign; the message is one sentence that names the remedy."""


Prepare: TypeAlias = Callable[[Sequence[str], Given, Callable[[str], None]], Given]
"""What a campaign is about, from the words of the command line and what has its setting and
options. It announces what takes long, and raises `CampaignError`, `TargetError` and
`EnvironmentFailure`."""


def one_target(facts: Callable[[Given, Place], Mapping[str, Any]]) -> Prepare:
    """For a campaign on one target, which answers some questions before there are jobs."""

    def prepare(words: Sequence[str], given: Given, announce: Callable[[str], None]) -> Given:
        if len(words) != 1:
            raise CampaignError("name one target, such as 0.33.0")
        target = resolve(words[0], announce=announce)
        place = Place(target, given.setting)
        with closing(place):
            return replace(given, targets=dict([named(target)]), facts=facts(given, place))

    return prepare


def named(target: Target) -> tuple[str, Target]:
    """A target with what its tree contains. Raises `CampaignError`."""
    if target.root is None:
        raise CampaignError(
            f"{target.name} cannot travel to other processes; name the directory that has its "
            "vllm package, or a release"
        )
    return content_of(target.root), target


@dataclass(frozen=True)
class Kind:
    """A kind of campaign.

    Attributes:
        name: its name.
        prepare: what it is about, from the words of the command line.
        plan: its jobs, round by round.
        work: runs one.
        seen: what a result shows, a word for each thing, for the live line.
        fold: what the results say together.
        takes: the options of the command line that change its jobs, by parameter.
        endless: whether there are always more jobs, so that a campaign needs a limit.
    """

    name: str
    prepare: Prepare
    plan: Callable[[Given], Rounds]
    work: Work
    seen: Callable[[Given, Result], Iterable[str]]
    fold: Callable[[Given, Ended], Summary]
    takes: frozenset[str] = frozenset()
    endless: bool = False

    @staticmethod
    def of(
        name: str, module: Any, prepare: Prepare, takes: Set[str], *, endless: bool = False
    ) -> "Kind":
        """The kind whose plan, work, seen and fold are functions of a module."""
        parts = module.plan, module.work, module.seen, module.fold
        return Kind(name, prepare, *parts, frozenset(takes), endless)
