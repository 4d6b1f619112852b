"""Each kind of evidence survives JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from hitproof.conformance.findings.evidence import (
    ConnectorEvidence,
    Evidence,
    FineLookupEvidence,
    HashEvidence,
    LookupEvidence,
    MaskEvidence,
    PoolEvidence,
    RetentionEvidence,
    SharedPrefixEvidence,
    smallest,
)
from hitproof.conformance.findings.findings import figures, finding

SAVED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("evidence.json").read_text())
"""What the checks printed of broken subjects."""

KINDS: dict[str, tuple[type[Evidence], str]] = {
    "a hit without its tail": (LookupEvidence, "lookup sliding_window"),
    "a joint hit too short": (LookupEvidence, "lookup several"),
    "a crash of a lookup": (LookupEvidence, "lookup sliding_window"),
    "an unreachable block registered": (MaskEvidence, "mask sliding_window"),
    "a reachable block left out": (MaskEvidence, "mask sliding_window"),
    "a mask that raises": (MaskEvidence, "mask sliding_window"),
    "a block kept for no hit": (RetentionEvidence, "mask sliding_window"),
    "a promised hit forgotten": (RetentionEvidence, "mask sliding_window"),
    "retention that raises": (RetentionEvidence, "mask sliding_window"),
    "a shared prefix not kept": (SharedPrefixEvidence, "mask sliding_window"),
    "a salt that is not hashed": (HashEvidence, "block_hash"),
    "a local prefix too short": (ConnectorEvidence, "lookup connector"),
    "a block in use in the free queue": (PoolEvidence, "block_pool"),
    "a hit inside a block a unit too far": (FineLookupEvidence, "lookup full_attention"),
}


def test_each_kind_was_saved() -> None:
    assert KINDS.keys() == SAVED.keys()


@pytest.mark.parametrize("name", SAVED)
def test_each_kind_survives_json_and_is_shown(name: str) -> None:
    evidence = Evidence.from_json(SAVED[name])
    assert (type(evidence), evidence.entry) == KINDS[name]
    assert Evidence.from_json(json.loads(json.dumps(evidence.as_json()))) == evidence
    shown = finding(evidence, "f:1")
    assert shown.given
    assert shown.evidence == evidence.as_json()
    drawn = not isinstance(evidence, PoolEvidence | HashEvidence)
    assert bool(figures(evidence)) == drawn
    assert bool(shown.strip) == (drawn or isinstance(evidence, PoolEvidence))
    assert smallest([evidence, evidence]) == {evidence.signature: evidence}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("a mask that raises", {"type": "odd"}),
        ("a mask that raises", {"no_such_key": 1}),
        ("a mask that raises", {"cached": [[1], [2]]}),
        ("a mask that raises", {"configuration": SAVED["a joint hit too short"]["configuration"]}),
        ("a salt that is not hashed", {"type": "retention"}),
        ("a shared prefix not kept", {"chunks": [1, 2]}),
        ("a block in use in the free queue", {"signature": {}}),
    ],
)
def test_what_is_no_evidence_is_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises((KeyError, ValueError, TypeError)):
        Evidence.from_json(SAVED[name] | change)
