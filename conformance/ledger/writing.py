"""Ledgers that are made from findings: entries, and entries as TOML."""

import json
from collections.abc import Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

from hitproof.conformance.findings.findings import Finding
from hitproof.conformance.histories.plays import Play
from hitproof.conformance.ledger.ledger import AcceptedRead, Entry
from hitproof.conformance.scope.layouts import judged_from_json


def adopted(finding: Finding, occasion: str) -> Entry:
    """An entry for a finding that has not been examined yet, on any release.

    ``occasion`` says when and on what it was found.
    """
    signature = finding.signature
    reason = (
        f"Adopted as it was found {occasion}, {signature.divergence} of "
        f"{signature.headline}. Write here what is wrong and "
        "why it is tolerated."
    )
    raw = finding.configuration
    configuration = Play.from_json(raw) if "origin" in raw else judged_from_json(raw)
    return Entry(signature, configuration, SpecifierSet(""), reason, "", reason)


def to_toml(entries: Sequence[Entry], comment: str, accepted: Sequence[AcceptedRead] = ()) -> str:
    """A ledger file, as `ledger.load` reads it; ``comment`` stands at its top."""
    lines = [f"# {line}".rstrip() for line in comment.splitlines()]
    for read in accepted:
        said = {"name": read.name, "releases": str(read.releases), "reason": read.reason}
        lines += ["", "[[accepted_read]]", *_pairs(said)]
    for entry in entries:
        lines += ["", "[[divergence]]"]
        about = {"releases": str(entry.releases), "cause": entry.cause, "reason": entry.reason}
        if entry.cause == entry.reason:
            del about["cause"]
        if entry.status:
            about["status"] = entry.status
        if entry.link:
            about["link"] = entry.link
        lines += _pairs(about)
        if isinstance(entry.configuration, Play):
            lines.append(f"history = {_value(entry.configuration.text)}")
        signature = entry.signature.as_json()
        del signature["pattern"]  # the code and its parameters say it
        lines += ["", "[divergence.signature]", *_pairs(signature)]
        if not isinstance(entry.configuration, Play):
            lines += ["", "[divergence.configuration]", *_pairs(entry.configuration.as_json())]
    return "\n".join(lines) + "\n"


def _pairs(data: dict[str, Any]) -> list[str]:
    """``key = value`` of each; what is None or empty is left out, except releases."""
    return [
        f"{key} = {_value(value)}"
        for key, value in data.items()
        if value not in (None, "", {}) or key == "releases"
    ]


def _value(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            # JSON's escapes are TOML's, but for DEL, which JSON leaves as it is.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list():
            return "[\n" + "".join(f"  {_value(item)},\n" for item in value) + "]"
        case dict():
            return "{ " + ", ".join(_pairs(value)) + " }"
    raise TypeError(f"a ledger has no {type(value).__name__}")
