"""The benchmark runs on a real release and says how often each side asks the pool."""

import json

import pytest

from benchmarks.manager import LAYOUTS, OPERATIONS, main

pytestmark = pytest.mark.release


def test_every_operation_is_compared(capsys):
    main(["--tokens", "4000", "--repetitions", "1", "--format", "json"])
    rows = json.loads(capsys.readouterr().out)
    found = {(row["layout"], row["operation"]): row for row in rows}
    assert set(found) == {(layout, operation) for layout in LAYOUTS for operation in OPERATIONS}
    assert all(row["reference_ms"] > 0 and row["vllm_ms"] > 0 for row in rows)
    # The reference never asks more often than vLLM does, and asks nothing but in lookups.
    assert all(row["reference_probes"] <= row["vllm_probes"] for row in rows)
    for (_, operation), row in found.items():
        assert (row["reference_probes"] > 0) == operation.startswith("lookup")


def test_skips_on_a_miss(capsys):
    main(
        ["--layouts", "window 1024", "--tokens", "4000", "--repetitions", "1", "--format", "json"]
    )
    (miss,) = (row for row in json.loads(capsys.readouterr().out) if "miss" in row["operation"])
    assert 4 * miss["reference_probes"] <= miss["vllm_probes"]


@pytest.mark.parametrize("arguments", [["--tokens", "1"], ["--release", "nothing"]])
def test_says_what_is_wrong(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert capsys.readouterr().err.count("error: ") == 1
