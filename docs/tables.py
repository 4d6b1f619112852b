"""Tables that pages share with the command: releases and their faults, policies, and codes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from docs.drawing import caption, explained
from docs.source import folded, listing, place
from hitproof.conformance.explain.explanation import Explanation, shortest_prompt, usual_hit
from hitproof.conformance.explain.reasons import in_words
from hitproof.conformance.findings.codes import MEANINGS
from hitproof.conformance.findings.meaning import Meaning, Parameter
from hitproof.conformance.findings.rules import RULES
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, grid, is_possible
from hitproof.conformance.scope.limits import LIMITS
from hitproof.conformance.scope.models import MODELS, Model
from hitproof.conformance.scope.profiles import LONGEST_TAIL, Profile
from hitproof.conformance.words import in_tokens
from hitproof.spec.claims import CLAIMS
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.reports import markdown
from hitproof.vllm_integration.reports.survey import document, table
from hitproof.vllm_integration.survey.faults import load
from hitproof.vllm_integration.survey.survey import read

faults = cache(load)
survey = cache(read)


def pages() -> Iterator[tuple[str, str]]:
    """File and Markdown of the pages that hold them."""
    yield "faults.md", document(survey(), faults())
    yield "policies.md", policies()
    yield "codes.md", codes()
    yield "sanity_rules.md", sanity_rules()


def releases() -> str:
    """Which release has which fault."""
    return table(survey(), faults()).replace("(BUGS.md#", "(faults.md#")


def bounds() -> str:
    """How far the obligations of each profile reach."""
    rows = []
    for profile in Profile:
        blocks = min(each.num_blocks for each in configurations(profile))
        tokens = [each.num_tokens for each in grid(profile)]
        most = f"at most {LONGEST_TAIL[profile]} blocks"
        several = f"{min(tokens)} to {max(tokens)} tokens"
        rows.append((profile, f"at least {blocks} blocks", several, most))
    columns = "profile", "one group", "several groups", "windows of real models, one group"
    return markdown.table(columns, rows)


def hits() -> str:
    """What a hit of each model's layout needs, with EAGLE and without."""
    rows = []
    for model in MODELS:
        without, with_it = (_hit(model, eagle) for eagle in (False, True))
        assert without is not None
        row = [model.name, *map(in_tokens, (without.layout.alignment, without.length))]
        for at, one in enumerate(without.groups):
            drafted = "not possible" if with_it is None else in_words(with_it.groups[at].required)
            rows.append([*row, caption(one.looked_up), in_words(one.required), drafted])
            row = ["", "", ""]
    return markdown.table(("layout", "alignment", "hit", "group", "needs", "with EAGLE"), rows)


def _hit(model: Model, eagle: bool) -> Explanation | None:
    groups = tuple(replace(group, eagle=group.eagle and eagle) for group in model.groups)
    layout = Layout(groups, 1, eagle, model.hash_block_size)
    if not is_possible(layout):
        return None
    hit = usual_hit(layout)
    return explained(groups, shortest_prompt(layout, LookaheadHorizon.HASHED, hit), eagle, hit)


def limits() -> str:
    """What is not judged, by what has the limit."""
    rows, previous = [], ""
    for limit in LIMITS.values():
        said = f"*{limit.refusal}*" if limit.refusal else ""
        part = "" if limit.part == previous else limit.part
        rows.append((part, limit.sentence, said))
        previous = limit.part
    return markdown.table(("", "limit", "printed sentence"), rows)


def codes() -> str:
    """What each code of a divergence means."""
    lines = [
        "# Codes of divergences",
        "",
        "A code is a stable name for what is wrong, to which ledgers and other tools refer. The "
        "sentence of a finding is derived from its code and the values of its parameters.",
    ]
    for code, meaning in sorted(MEANINGS.items()):
        lines += ["", f"## {code}", "", *_meaning(meaning)]
    return "\n".join(lines)


def sanity_rules() -> str:
    """What is expected of vLLM though no claim implies it, and which codes cite it."""
    lines = [
        "# Sanity rules",
        "",
        "A finding contradicts a [claim of the spec](clauses.md) or one of these rules. A claim is "
        "derived from what attention needs, and has a theorem. A sanity rule is expected of a "
        "sound engine for the stated reason; nothing is proved about it.",
    ]
    for rule in RULES.values():
        codes = [code for code, meaning in sorted(MEANINGS.items()) if rule.name in meaning.claims]
        links = ", ".join(f"[{code}](codes.md#{code})" for code in codes)
        symbols = ", ".join(f"`{each}`" for each in rule.symbols)
        lines += ["", f"## {rule.name}", "", f"**{rule.sentence}** {rule.reason}", ""]
        lines += [f"Codes that cite it: {links}. In vLLM: {symbols}."]
    return "\n".join(lines)


def _meaning(meaning: Meaning) -> Iterator[str]:
    yield f"*{', '.join(meaning.classes)}.* {meaning.means}"
    yield ""
    yield meaning.effect
    yield ""
    claims = [_claim(name) for name in meaning.claims]
    claims += ["the claim that a check is about"] * meaning.any_claim
    yield f"Sentence: `{meaning.sentence}`. Contradicts: {', '.join(claims)}."
    if meaning.parameters:
        yield ""
        yield "| parameter | about | values |"
        yield "|---|---|---|"
        yield from map(_parameter, meaning.parameters)


def _claim(name: str) -> str:
    """A claim of the spec or a sanity rule, with its page."""
    page = f"{name}.md" if name in CLAIMS else f"sanity_rules.md#{name}"
    return f"[{name}]({page})"


def _parameter(parameter: Parameter) -> str:
    free = isinstance(parameter.phrases, str)
    values = "any name" if free else ", ".join(f"`{value}`" for value in parameter.phrases)
    more = "; optional" if parameter.optional else ""
    return f"| `{parameter.name}` | {parameter.about} | {values}{more} |"


def policies() -> str:
    """What releases differ in on purpose."""
    lines = [
        "# Policies",
        "",
        "Releases also differ on purpose. For each such difference the spec has a named "
        "parameter. `hitproof check` detects a target's values, judges by them, and reports "
        "[the hits that they lose](commands/policies.md#what-a-policy-costs) compared with the "
        "best ones.",
        "",
    ]
    for policy in POLICIES.values():
        symbols = ", ".join(f"`{each}`" for each in policy.symbols)
        title = policy.name.replace("_", " ").capitalize().replace("Eagle", "EAGLE")
        lines += [f"## {title}", "", policy.sentence, ""]
        lines += [f"In vLLM: {symbols}.", "", "| value | releases |", "|---|---|"]
        lines += [f"| {era.value} | `{era.releases}` |" for era in policy.eras]
        if policy.best is not None:
            lines += ["", f"Best: {policy.best}. `hitproof check --strict` judges by it."]
        values = type(policy.eras[0].value)
        lines += ["", folded(f"What the values mean ({place(values)})", listing(values)), ""]
    return "\n".join(lines)
