"""What is proved of the target's functions for all lengths, sizes and cache contents.

The worker proves it (`vllm_integration.worker.unbounded`). What is proved without a bound is never
refuted up to one: that would be a defect of hitproof.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from hitproof.conformance.findings.evidence import LookupEvidence
from hitproof.conformance.picking import picked
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.subject.failures import InternalError
from hitproof.conformance.words import count
from hitproof.spec.claims import Status
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.gate.obligations import Obligation

SECONDS = 20.0
"""CPU time for one proof, for each group; there may be two of them for a statement."""

_EAGLE, _HASHES, _INSIDE = "eagle", "hashes", "inside"
_IN_WORDS = {_EAGLE: " with EAGLE", _INSIDE: " for hits inside blocks"}
_LOOKUPS = (
    "hit_has_every_block_attention_reads",
    "eagle_needs_tail_plus_one",
    "lookup_returns_longest_valid_hit",
)
"""The claims that a statement about a lookup is about."""

_COMMON = ("common_hit_is_valid_for_every_group", "common_hit_is_the_longest")
"""Those that a statement about a coordinator is about."""

_COMMON_LOOKUPS = {
    "coordinator": "common lookup of",
    "serving": "lookup in the Mooncake store of",
}

_TIER_MASKS = {
    "storing": "blocks that the Mooncake store stores of",
    "asking": "blocks that the Mooncake store looks up of",
}

_STATEMENTS = (
    "coordinator sliding_window eagle sliding_window",
    "coordinator full_attention sliding_window sliding_window",
    "coordinator full_attention sliding_window mamba",
    "lookup sliding_window eagle",
    "mask sliding_window eagle interval",
    "coordinator sliding_window sliding_window",
    "lookup sliding_window",
    "mask sliding_window interval",
    "mask sliding_window eagle latest",
    "mask sliding_window latest",
    "freeing mamba",
    "registration mamba",
    "registration sliding_window",
    "coordinator full_attention eagle sliding_window eagle",
    "coordinator full_attention sliding_window eagle",
    "coordinator full_attention eagle sliding_window",
    "coordinator full_attention sliding_window",
    "coordinator sliding_window eagle",
    "coordinator sliding_window",
    "serving full_attention eagle sliding_window eagle",
    "serving full_attention sliding_window",
    "serving full_attention mamba",
    *(f"{mask} sliding_window{drops}" for mask in _TIER_MASKS for drops in (f" {_EAGLE}", "")),
    f"coordinator full_attention sliding_window mamba {_INSIDE}",
    f"coordinator full_attention eagle mamba {_INSIDE}",
    f"coordinator full_attention mamba {_INSIDE}",
    f"lookup full_attention eagle {_INSIDE}",
    f"lookup full_attention {_INSIDE}",
    "lookup full_attention eagle",
    "lookup full_attention",
    "lookup chunked_local",  # vLLM asserts that it has no draft layers
    "lookup mamba eagle",
    "lookup mamba",
    f"lookup mamba {_INSIDE}",
    "mask sliding_window eagle dense",
    "mask sliding_window dense",
    "hashes",
    "mask full_attention dense",
    "mask chunked_local dense",
    "mask mamba dense",
    "mask mamba latest",
    "registration full_attention",
    "registration chunked_local",
    *(f"freeing {kind}" for kind in GroupKind if kind is not GroupKind.MAMBA),
    "coordinator full_attention eagle mamba",
    "coordinator full_attention mamba",
    "coordinator full_attention chunked_local",
    "coordinator full_attention eagle",
    "coordinator mamba eagle",
    *(f"coordinator {kind}" for kind in GroupKind if kind is not GroupKind.SLIDING_WINDOW),
    *(f"skipped {kind}" for kind in GroupKind),
    *(f"admission {kind}" for kind in GroupKind if kind is not GroupKind.MAMBA),
    "replay",
    "replay eagle",
    *(f"{mask} full_attention{drops}" for mask in _TIER_MASKS for drops in (f" {_EAGLE}", "")),
    *(f"{mask} chunked_local" for mask in _TIER_MASKS),
    "asking mamba",  # the states that are stored are handed over one by one
)
"""The statements, those that take longest first: what it is about, the kind, and the rest."""


def statements(profile: Profile) -> list[str]:
    """The statements that are put to the target.

    The quick profile has those that take about a second, the thorough one all.
    """
    first = {
        Profile.QUICK: "lookup full_attention eagle",
        Profile.DEFAULT: "coordinator full_attention sliding_window sliding_window",
        Profile.THOROUGH: _STATEMENTS[0],
    }
    return list(_STATEMENTS[_STATEMENTS.index(first[profile]) :])


def seconds_for(name: str) -> float:
    """How long a proof of the statement may take."""
    return SECONDS * len(kinds_of(name)) if name.startswith(tuple(_COMMON_LOOKUPS)) else SECONDS


@dataclass(frozen=True)
class Unbounded:
    """One statement about a function of the target, for all lengths, and how it ended.

    Attributes:
        name: what the statement is about: "lookup", also of hits "inside" blocks, "mask",
            "registration", "freeing", "skipped" tokens, "admission", "replay", "storing", "asking"
            or "serving" of the Mooncake store, or the lookup of a "coordinator", the kind or kinds
            of its groups, and the rest.
        status: proved for all lengths, refuted by values, or inconclusive.
        detail: what fails, or why nothing is known.
        outside: the causes of known divergences, outside of which it is proved, each with its exact
            condition.
        evidence: the counterexample, where there is one.
    """

    name: str
    status: Status
    detail: str = ""
    outside: Mapping[str, str] = field(default_factory=dict)
    evidence: LookupEvidence | None = None

    @classmethod
    def from_answer(cls, name: str, answer: Mapping[str, Any]) -> "Unbounded":
        """What the worker says."""
        raw = answer["evidence"]
        evidence = None if raw is None else LookupEvidence.from_json(raw)
        assert evidence is None or isinstance(evidence, LookupEvidence)
        status, outside = Status(answer["status"]), dict(answer["outside"])
        return cls(name, status, answer["detail"], outside, evidence)

    def describe(self) -> str:
        """What the statement is about, in words."""
        if self.name == _HASHES:
            return "hashes that lookups see"
        what, *rest = self.name.split()
        if what in _COMMON_LOOKUPS:
            kinds = " and ".join(map(_in_words, kinds_of(self.name)))
            inside = _IN_WORDS[_INSIDE] if _INSIDE in rest else ""
            return f"{_COMMON_LOOKUPS[what]} {kinds}{inside}"
        if what == "replay":
            return f"boundaries of replays{' with EAGLE' if rest else ''}"
        by = {
            "skipped": "tokens skipped by",
            "freeing": "blocks freed by",
            "admission": "blocks asked for by",
            **_TIER_MASKS,
        }
        of = by.get(what, f"{what} of")
        kind, *rest = rest
        told = [_IN_WORDS.get(each, f", {each} retention") for each in rest]
        return f"{of} {kind.replace('_', ' ')}{''.join(told)}"

    def as_json(self) -> dict[str, Any]:
        """The statement as JSON; it has no bound."""
        told = {"outside": list(self.outside), "conditions": list(self.outside.values())}
        return picked(self, "name", "status", "detail") | told | {"bound": None}

    def is_about(self, judged: Configuration | Layout) -> bool:
        """Whether it says something of the lookup of such a group, or of such groups."""
        what = "lookup" if isinstance(judged, Configuration) else "coordinator"
        looked_up = [each.group for each in judged.looked_up]
        told = [f"{each.kind} {_EAGLE}" if each.eagle else str(each.kind) for each in looked_up]
        return self.name == " ".join([what, *told]) and _is_meant(judged)


def kinds_of(name: str) -> list[str]:
    """The kinds that a name of a statement speaks of, each with whether it has draft layers."""
    named = name.removesuffix(f" {_INSIDE}").partition(" ")[2]
    return named.replace(f" {_EAGLE}", f"+{_EAGLE}").split()


def _in_words(kind: str) -> str:
    return kind.replace("_", " ").replace(f"+{_EAGLE}", " with EAGLE")


def resting(found: Sequence[Unbounded]) -> list[Unbounded]:
    """The same; what is proved counts only if what it rests on is proved, too.

    Lookups rest on the hashes that they see, if the target makes them there, coordinators on the
    lookups, registration on the masks, and freeing and admission on the tokens that are skipped.
    """
    by_name = {each.name: each for each in found}
    for name in sorted(by_name, key=lambda name: name.startswith(tuple(_COMMON_LOOKUPS))):
        for needed in _needed(name):
            on, each = by_name.get(needed), by_name[name]
            settled = on is not None and on.status in (Status.PROVED, Status.NOT_APPLICABLE)
            if each.status is Status.PROVED and not settled:
                said = Unbounded(needed, Status.INCONCLUSIVE).describe()
                why = f"it rests on what is said of the {said}, which is not proved"
                by_name[name] = replace(each, status=Status.INCONCLUSIVE, detail=why)
    return list(by_name.values())


def unless_known(found: Iterable[Unbounded], causes: Set[str]) -> list[Unbounded]:
    """The same; what holds only outside of divergences that are not known is refuted there."""
    return [
        replace(each, status=Status.REFUTED, detail="; ".join(new))
        if (new := [told for cause, told in each.outside.items() if cause not in causes])
        and each.status is Status.PROVED
        else each
        for each in found
    ]


def _needed(name: str) -> Iterator[str]:
    """The statements that one rests on."""
    if name.startswith("lookup"):
        yield _HASHES
    if name.startswith(("freeing", "admission")):
        yield f"skipped {kinds_of(name)[0]}"
    if name.startswith("registration"):
        yield from (each for each in _STATEMENTS if each.startswith(f"mask {kinds_of(name)[0]} "))
    if name.startswith(tuple(_COMMON_LOOKUPS)):
        for kind in kinds_of(name):
            for lookup in (kind.removesuffix(f"+{_EAGLE}"), kind.replace("+", " ")):
                inside = f"lookup {lookup} {_INSIDE}"
                ends_inside = name.endswith(_INSIDE) and inside in _STATEMENTS
                yield inside if ends_inside else f"lookup {lookup}"


def _is_meant(judged: Configuration | Layout) -> bool:
    """Whether a configuration or layout has what statements take for granted."""
    groups = [each.group for each in judged.looked_up]
    if isinstance(judged, Layout):
        alone = len(judged.looked_up) == len(judged.groups) and not judged.tier
    else:
        alone = judged.ranks == (1, 1) and judged.members == 1
        alone = alone and judged.hash_block_size == judged.group.block_size
    return alone and all(
        (group.window is None or group.window > 1)
        and (group.chunk is None or group.chunk % group.block_size == 0)
        and group.prefill_lookahead == 1
        for group in groups
    )


def check_agreement(proved: Sequence[Unbounded], obligations: Iterable[Obligation]) -> None:
    """Raise `InternalError` where something is refuted that is proved for all lengths."""
    whole = [each for each in proved if each.status is Status.PROVED and not each.outside]
    for obligation in obligations:
        configuration = obligation.configuration
        if obligation.status is not Status.REFUTED or obligation.claim not in _LOOKUPS + _COMMON:
            continue
        if not isinstance(configuration, Configuration | Layout):
            continue
        for each in whole:
            if each.is_about(configuration):
                raise InternalError(
                    f"the {each.describe()} is proved for all lengths, but refuted for "
                    f"{configuration.describe()}"
                )


def proved_in_words(found: Sequence[Unbounded], verbose: bool = False) -> list[str]:
    """How many statements are proved, and of each other one why it is not.

    ``verbose``: also the conditions of known divergences.
    """
    found = [each for each in found if each.status is not Status.NOT_APPLICABLE]
    proved = [each for each in found if each.status is Status.PROVED]
    but = [each for each in proved if each.outside]
    spared = f" ({len(but)} outside known divergences)" if but else ""
    lines = [
        f"proved for all lengths, sizes and cache contents: {len(proved)} of "
        f"{count(found, 'statement')} about lookups, masks, registration and freeing{spared}"
    ]
    for each in but if verbose else ():
        lines += [f"  but for {each.describe()}: {told}" for told in each.outside.values()]
    for each in found:
        if each.status is Status.REFUTED:
            lines.append(f"  refuted: {each.describe()}: {each.detail}")
        elif each.status is not Status.PROVED:
            lines.append(f"  not proved for all lengths: {each.describe()}: {each.detail}")
    return lines
