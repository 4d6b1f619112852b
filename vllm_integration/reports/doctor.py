"""A diagnosis, as people and as programs read it."""

from typing import Any

from rich.console import Console

from hitproof.conformance.picking import picked
from hitproof.conformance.words import in_tokens
from hitproof.spec.groups import GroupKind
from hitproof.vllm_integration.gate.doctor import Diagnosis
from hitproof.vllm_integration.reports.printing import print_text, sentence, sentences
from hitproof.vllm_integration.survey.faults import Fault, of_codes

_WIDTH = 24
_HIT, _LOST, _NEW = "█", "░", "·"


def diagnosis_json(found: Diagnosis) -> dict[str, Any]:
    """A diagnosis as JSON."""
    wanted = found.wanted
    return {
        "target": found.target.label,
        **picked(wanted, "arguments", "answer", "question", model="model.name"),
        "max_model_len_cut": wanted.cut,
        **picked(found, "deployment", "broken_rules", requests="rows", shortest_prompt="shortest"),
        "shortest_prompt_at_best": found.shortest_at_best,
        **picked(found, other_arguments="arguments", other_releases="releases"),
        "faults": {
            code: [picked(each, "number", "title") for each in faults]
            for code, faults in faults_of(found).items()
        },
    }


def facts(found: Diagnosis) -> list[str]:
    """What decides hits on this deployment, in sentences."""
    return sentences("facts", found.deployment, found.wanted)


def wrong(found: Diagnosis) -> list[str]:
    """What is wrong with the groups and block sizes that the target derives."""
    return [f"wrong: {each['rule']}, but {each['sentence']}" for each in found.broken_rules]


def groups_in_rows(found: Diagnosis) -> list[tuple[str, ...]]:
    """The groups: number, kind, block size, window or chunk, layers, spec."""
    return [
        (
            str(number),
            group["kind"].replace("_", " ")
            + (" + draft layers" if group["eagle"] else "")
            + ("" if group["prefix_cacheable"] else ", not cached"),
            str(group["block_size"]),
            str(group["window"] or group["chunk"] or ""),
            f"{group['layers']}, from {group['first_layer']}",
            group["spec"],
        )
        for number, group in enumerate(found.deployment["groups"])
    ]


def causes(found: Diagnosis) -> list[str]:
    """Each cause once, with the requests that it costs hits, its code and known faults."""
    rows: dict[tuple[str, str, str | None, int | None], list[dict[str, Any]]] = {}
    for row in found.short:
        cause = row["shortfall"]
        key = sentence("request", row), cause["part"], cause["code"], cause["group"]
        rows.setdefault(key, []).append(row)
    lines, known = [], faults_of(found)
    for (reuse, part, code, _), same in rows.items():
        first = same[-1]
        sizes = ", ".join(str(row["prompt"]) for row in same)
        named = "" if code is None else f" [{code}]"
        about = ", ".join(f"BUGS {fault.number}" for fault in known.get(code or "", ()))
        lines.append(
            f"{reuse} of {sizes}: {part}: {first['shortfall']['sentence']}{named}"
            + (f" (as {about})" if about else "")
        )
    return lines


def shortest_in_words(found: Diagnosis) -> str:
    """The length of the shortest prompt that hits anything, and what a tier serves."""
    told, tier = (
        sentence("shortest", found.shortest, found.shortest_at_best),
        found.deployment["tier"],
    )
    if tier is None:
        return told
    alone = sentence("shortest", tier["shortest"], tier["shortest_at_best"])
    both: dict[tuple[Any, ...], dict[bool, int]] = {}
    for row in found.rows:
        both.setdefault((row["prompt"], row["reuse"]), {})[row["emptied"]] = row["hit"]
    pairs = [each for each in both.values() if len(each) > 1]
    served, here = (sum(each[emptied] for each in pairs) for emptied in (True, False))
    return f"{told}; with the pool emptied, {alone}: {served} of {in_tokens(here)} in all"


COLUMNS = ("prompt", "request", "tokens", "hit", "at best")
"""The columns of requests, without the bar."""


def requests_in_tables(found: Diagnosis) -> list[tuple[str, list[dict[str, Any]]]]:
    """The requests: as they are served, and with a tier as it alone serves them, each titled."""
    rows = [row for row in found.rows if not row.get("emptied")]
    if found.deployment["tier"] is None:
        return [("", rows)]
    alone = [row for row in found.rows if row["emptied"]]
    return [("from the pool and the tier:", rows), ("from the tier, the pool emptied:", alone)]


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """A request in `COLUMNS`; of what it hits, what the tier was asked for."""
    tier = row.get("of_tier") or 0
    hit = f"{row['hit']} (tier {tier})" if tier and not row["emptied"] else str(row["hit"])
    return str(row["prompt"]), row["reuse"], str(row["tokens"]), hit, str(row["best"])


def bar(row: dict[str, Any], width: int = _WIDTH) -> str:
    """A request as a bar: what it hits, what it would at best, and the rest."""
    hit: int = row["hit"] * width // row["tokens"]
    lost: int = max(row["best"] * width // row["tokens"] - hit, int(row["best"] > row["hit"]))
    return _HIT * hit + _LOST * lost + _NEW * (width - hit - lost)


def told(found: Diagnosis) -> dict[str, Any]:
    """All that text and pages say of a diagnosis, by the names that templates use."""
    return {
        "found": found,
        "facts": [*facts(found), *wrong(found)],
        "groups": groups_in_rows(found),
        "requests": requests_in_tables(found),
        "columns": COLUMNS,
        "cells": cells,
        "shortest": shortest_in_words(found),
        "lists": [
            ("Why hits are lost", causes(found)),
            ("Other arguments", [sentence("changed", each) for each in found.arguments]),
            ("Other releases", [sentence("changed", each) for each in found.releases]),
        ],
    }


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """A diagnosis as text."""
    print_text(console, "doctor.txt", **told(found), bar=bar, legend=_legend())


def _legend() -> str:
    return f"{_HIT} hit  {_LOST} lost  {_NEW} computed"


def faults_of(found: Diagnosis) -> dict[str, list[Fault]]:
    """The known faults of the release with the codes of the shortfalls, by code."""
    told = found.deployment
    kinds = {GroupKind(each["kind"]) for each in told["groups"]}
    codes = {row["shortfall"]["code"] for row in found.short} - {None}
    return of_codes(codes, found.target.version, kinds, told["use_eagle"])
