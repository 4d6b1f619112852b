"""``hitproof explain``."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from packaging.version import InvalidVersion

from hitproof.conformance.explain.explanation import (
    MOST_TOKENS,
    Cache,
    Explanation,
    ExplanationError,
    Question,
    shortest_prompt,
    usual_hit,
)
from hitproof.conformance.explain.story import choose, tell
from hitproof.conformance.findings.codes import UnknownCode, named
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.layouts import Layout, hash_unit
from hitproof.conformance.scope.models import MODELS
from hitproof.spec.groups import ConfigurationError, Group, GroupKind, alignment, whole_blocks
from hitproof.spec.releases.horizons import LookaheadHorizon
from hitproof.spec.releases.policies import POLICIES
from hitproof.vllm_integration.commands.frame import Answer, command, write_text
from hitproof.vllm_integration.gate.policies import expected_value
from hitproof.vllm_integration.reports.codes import code_json, codes_json, print_code, print_codes
from hitproof.vllm_integration.reports.explain import (
    explanation_json,
    explanation_svg,
    print_explanation,
    print_story,
    story_json,
)
from hitproof.vllm_integration.survey import faults, survey
from hitproof.vllm_integration.survey.examples import example_of
from hitproof.vllm_integration.verdict import Verdict

_DENSE = "dense"
_NEWEST = LookaheadHorizon(POLICIES["lookahead_horizon"].eras[-1].value)


@command(ConfigurationError, UnknownCode)
def explain(
    finding: str | None = None,
    groups: list[str] | None = None,
    preset: str | None = None,
    eagle: bool = False,
    tokens: Annotated[int | None, {"max": MOST_TOKENS}] = None,
    hit: Annotated[int | None, {"max": MOST_TOKENS}] = None,
    cached: list[str] | None = None,
    retention: str = _DENSE,
    horizon: LookaheadHorizon = _NEWEST,
    release: str | None = None,
    number: int | None = None,
    svg: Path | None = None,
    codes: bool = False,
) -> Answer:
    """Show which blocks a hit needs, which are registered, and why; or explain a finding or a code.

    The alignment is the least common multiple of the groups' block sizes. No vLLM is needed.
    """
    asked = groups, preset, cached, tokens, hit, svg, release
    configured = eagle or retention != _DENSE or horizon is not _NEWEST or any(asked)
    if codes:
        if configured or finding is not None or number is not None:
            raise ExplanationError("--codes lists all codes; give it alone")
        return Answer(Verdict.CONFORMS, print_codes, codes_json)
    if finding is not None:
        if configured:
            raise ExplanationError(
                "a finding has a configuration of its own; give FINDING alone, or leave it out"
            )
        if is_code(finding):
            if number is not None:
                raise ExplanationError("--number chooses a finding of a report, not of a code")
            code = named(finding)
            example = example_of(code, survey.read(), faults.load())
            shown = partial(print_code, code, example), partial(code_json, code, example)
            return Answer(Verdict.CONFORMS, *shown)
        story = tell(choose(*_read(finding), number))
        return Answer(Verdict.CONFORMS, partial(print_story, story), partial(story_json, story))
    if number is not None:
        raise ExplanationError("--number chooses a finding of a report; give FINDING, too")
    horizon = _horizon(release, horizon)
    layout = _layout(groups or [], preset, eagle)
    told = _explanation(layout, tokens, hit, cached, _interval(retention), horizon)
    if svg is not None:
        where = "; name a file in a directory that is there"
        write_text(svg, explanation_svg(told), where)
    shown = partial(print_explanation, told), partial(explanation_json, told)
    return Answer(Verdict.CONFORMS, *shown)


def is_code(finding: str) -> bool:
    """Whether it is a code, or meant to be one: words with hyphens, and no file."""
    if finding in list(Code):
        return True
    return bool(re.fullmatch(r"[A-Za-z]+(-[A-Za-z]+)+", finding)) and not Path(finding).exists()


def _explanation(
    layout: Layout,
    tokens: int | None,
    hit: int | None,
    cached: list[str] | None,
    retention: int | None,
    horizon: LookaheadHorizon,
) -> Explanation:
    aim = replace(layout, num_tokens=tokens or 1)
    Explanation(Question(aim, horizon, retention)).check()
    if tokens is None:
        shown = hit or usual_hit(layout)
        above = -(-shown // layout.alignment) * layout.alignment
        aim = replace(layout, num_tokens=shortest_prompt(layout, horizon, above))
    cache = None if cached is None else _cache(aim, cached)
    explanation = Explanation(Question(aim, horizon, retention, hit, cache))
    explanation.check()
    return explanation


def _layout(groups: list[str], preset: str | None, eagle: bool) -> Layout:
    if bool(groups) == (preset is not None):
        names = ", ".join(model.name for model in MODELS)
        raise ExplanationError(
            "say what to explain: --group, repeated for each group, or one --preset "
            f"({names}), or FINDING"
        )
    if preset is not None:
        return _preset(preset, eagle)
    read = tuple(map(_group, groups))
    alignment(read)
    return Layout(read, 1, eagle or any(group.eagle for group in read), hash_unit(read))


def _preset(name: str, eagle: bool) -> Layout:
    for model in MODELS:
        if model.name.lower() == name.lower():
            groups = tuple(replace(each, eagle=each.eagle and eagle) for each in model.groups)
            title = f"{model.name}{' + EAGLE' if eagle else ''}"
            return Layout(groups, 1, eagle, model.hash_block_size, title)
    names = ", ".join(model.name for model in MODELS)
    raise ExplanationError(f"there is no preset {name!r}; choose one of {names}")


_SIZES = ("block_size", "window", "chunk")
_FLAGS = ("eagle", "uncached")


def _group(text: str) -> Group:
    kind, *settings = (part.strip() for part in text.split(","))
    kinds = [str(each) for each in GroupKind]
    wanted = kind.lower().replace("-", "_")
    if wanted not in kinds:
        raise ExplanationError(
            f"--group {text!r} has no kind {kind!r}; begin with one of {', '.join(kinds)}"
        )
    sizes: dict[str, int] = {}
    flags: set[str] = set()
    for setting in settings:
        key, given, value = (part.strip() for part in setting.partition("="))
        key = key.lower().replace("-", "_")
        if key in sizes or key in flags:
            raise ExplanationError(f"--group {text!r} says {key} twice; say it once")
        if key in _FLAGS and not given:
            flags.add(key)
        elif key in _SIZES and re.fullmatch(r"[0-9]{1,9}", value):
            sizes[key] = int(value)
        else:
            raise ExplanationError(
                f"--group {text!r} cannot have {setting!r}; after the kind come "
                "block_size=N, window=N, chunk=N, eagle and uncached, with commas between"
            )
    if "block_size" not in sizes:
        raise ExplanationError(f"--group {text!r} has no block size; add block_size=16, say")
    return Group(
        GroupKind(wanted),
        sizes["block_size"],
        sizes.get("window"),
        "eagle" in flags,
        sizes.get("chunk"),
        "uncached" not in flags,
    )


def _horizon(release: str | None, horizon: LookaheadHorizon) -> LookaheadHorizon:
    """The horizon of a release, where one is named."""
    if release is None:
        return horizon
    if horizon is not _NEWEST:
        raise ExplanationError("--release and --horizon exclude each other; leave one out")
    try:
        return LookaheadHorizon(expected_value(POLICIES["lookahead_horizon"], release))
    except InvalidVersion:
        raise ExplanationError(f"{release!r} is not a release; write one such as 0.33.0") from None


def _interval(text: str) -> int | None:
    if text.lower() == _DENSE:
        return None
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ExplanationError(
            f"--retention is an interval in tokens, 0 for the latest boundary only, or 'dense', "
            f"not {text!r}"
        )
    return int(text)


def _cache(layout: Layout, cached: list[str]) -> Cache:
    held: dict[int, frozenset[int]] = {}
    for text in cached:
        group, given, blocks = text.partition("=")
        if not given or not re.fullmatch(r"[0-9]{1,9}", group.strip()):
            raise ExplanationError(f"--cached {text!r} names no group; write 1=25-31,33 or 1=none")
        group_id = int(group)
        if group_id >= len(layout.groups):
            raise ExplanationError(
                f"--cached {text!r} names group {group_id}; there are 0 to {len(layout.groups) - 1}"
            )
        if group_id in held:
            raise ExplanationError(f"--cached names group {group_id} twice; name it once")
        full = whole_blocks(layout.num_tokens, layout.groups[group_id].block_size)
        held[group_id] = _blocks(text, blocks, full)
    return tuple(held.get(group_id) for group_id in range(len(layout.groups)))


def _blocks(text: str, blocks: str, full: int) -> frozenset[int]:
    found: set[int] = set()
    if blocks.strip().lower() == "none":
        return frozenset()
    for part in blocks.split(","):
        matched = re.fullmatch(r"\s*([0-9]{1,9})(?:\s*-\s*([0-9]{1,9}))?\s*", part)
        if matched is None:
            raise ExplanationError(f"--cached {text!r} is not clear; write 1=25-31,33 or 1=none")
        first, last = int(matched[1]), int(matched[2] or matched[1])
        if not first <= last < full:
            raise ExplanationError(
                f"--cached {text!r}: the prompt has {full} full blocks of that group, counted "
                f"from 0, and a range begins with its lower end; {part.strip()} is none of them"
            )
        found.update(range(first, last + 1))
    return frozenset(found)


def _read(finding: str) -> tuple[bytes, str]:
    if finding == "-":
        return typer.get_binary_stream("stdin").read(), "standard input"
    try:
        return Path(finding).read_bytes(), finding
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ExplanationError(f"{finding} cannot be read ({reason}); name a file") from None
