"""Tables that pages share with the command: releases and their faults, policies, and codes."""

from dataclasses import replace
from functools import cache

from docs.drawing import caption, explained
from hitproof.conformance.explain.explanation import Explanation, shortest_prompt, usual_hit
from hitproof.conformance.explain.reasons import in_words
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, grid, is_possible
from hitproof.conformance.scope.limits import LIMITS
from hitproof.conformance.scope.models import MODELS, Model
from hitproof.conformance.scope.profiles import LONGEST_TAIL, Profile
from hitproof.conformance.words import in_tokens
from hitproof.proofs.unbounded.semantics import ROWS
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.vllm_integration.reports import markdown
from hitproof.vllm_integration.reports.survey import table
from hitproof.vllm_integration.survey.faults import load
from hitproof.vllm_integration.survey.survey import read

faults = cache(load)
survey = cache(read)


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


def semantics() -> str:
    """What the symbolic execution of real code assumes of Python."""
    rows = [(row.__name__.replace("_", " "), row.__doc__ or "") for row in ROWS]
    return markdown.table(("Python", "what is assumed"), rows)


def limits() -> str:
    """What is not judged, by what has the limit."""
    rows, previous = [], ""
    for limit in LIMITS.values():
        said = f"*{limit.refusal}*" if limit.refusal else ""
        part = "" if limit.part == previous else limit.part
        rows.append((part, limit.sentence, said))
        previous = limit.part
    return markdown.table(("", "limit", "printed sentence"), rows)
