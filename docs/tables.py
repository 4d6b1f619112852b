"""Tables that pages share with the command: releases and their faults, and policies."""

from collections.abc import Iterator
from functools import cache

from docs.source import folded, listing, place
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import grid
from hitproof.conformance.scope.profiles import LONGEST_TAIL, Profile
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.reports.survey import document, table
from hitproof.vllm_integration.survey.faults import load
from hitproof.vllm_integration.survey.survey import read

faults = cache(load)
survey = cache(read)


def pages() -> Iterator[tuple[str, str]]:
    """File and Markdown of the pages that hold them."""
    yield "faults.md", document(survey(), faults())
    yield "policies.md", policies()


def releases() -> str:
    """Which release has which fault."""
    return table(survey(), faults()).replace("(BUGS.md#", "(faults.md#")


def bounds() -> str:
    """How far the obligations of each profile reach."""
    lines = [
        "| profile | one group | several groups | windows of real models, one group |",
        "|---|---|---|---|",
    ]
    for profile in Profile:
        blocks = min(each.num_blocks for each in configurations(profile))
        tokens = [each.num_tokens for each in grid(profile)]
        lines.append(
            f"| {profile} | at least {blocks} blocks | {min(tokens)} to {max(tokens)} tokens "
            f"| at most {LONGEST_TAIL[profile]} blocks |"
        )
    return "\n".join(lines)


def policies() -> str:
    """What releases differ in on purpose."""
    lines = [
        "# Policies",
        "",
        "Releases also differ on purpose. Where they do, the spec has a named parameter, and "
        "`hitproof check` judges a target by the values that it shows.",
        "",
    ]
    for policy in POLICIES.values():
        symbols = ", ".join(f"`{each}`" for each in policy.symbols)
        title = policy.name.replace("_", " ").capitalize().replace("Eagle", "EAGLE")
        lines += [f"## {title}", "", policy.sentence, ""]
        lines += [f"In vLLM: {symbols}.", "", "| value | releases |", "|---|---|"]
        lines += [f"| {era.value} | `{era.releases}` |" for era in policy.eras]
        values = type(policy.eras[0].value)
        lines += ["", folded(f"What the values mean ({place(values)})", listing(values)), ""]
    return "\n".join(lines)
