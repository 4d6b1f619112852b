"""Histories are read strictly and written so that they can be read again."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hitproof.conformance.histories.generator import history
from hitproof.conformance.histories.json_format import read, schema, write
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import Embeddings, HistoryError, RequestInput
from hitproof.conformance.tests.editing import cases

BY_HAND = """
{"about": "a prompt and its resend",
 "engine": {"groups": [{"kind": "full_attention", "block_size": 16},
                       {"kind": "sliding_window", "block_size": 16, "window": 32}],
            "num_gpu_blocks": 40, "hash_block_size": 16, "max_model_len": 128},
 "requests": {"a": {"prompt": [[1, 40], 7], "output": [50, 51]},
              "b": {"prompt": [[1, 40], 7], "lora_name": "poet", "cache_salt": "s",
                    "images": [{"identifier": "cat", "offset": 2, "length": 9}]}},
 "steps": [{"do": "schedule", "request": "a", "tokens": 16},
           {"do": "schedule", "request": "a", "drafts": 2, "accepted": 1, "external": 16},
           {"do": "lookup", "request": "b"},
           {"do": "load", "request": "b", "tokens": 16},
           {"do": "loaded", "request": "b", "tokens": 8},
           {"do": "preempt", "request": "a"},
           {"do": "evict", "request": "a", "group": 1, "blocks": [0, 1]},
           {"do": "finish", "request": "a"},
           {"do": "new_step"},
           {"do": "reset"}]}
"""


EMBEDDED = (Embeddings(1, (7, 8)),)


def test_embeddings_are_part_of_what_a_block_holds() -> None:
    requests = {
        "plain": RequestInput((5, 0, 0, 6)),
        "embedded": RequestInput((5, 0, 0, 6), embeddings=EMBEDDED),
        "again": RequestInput((5, 0, 0, 6), embeddings=EMBEDDED),
        "apart": RequestInput((5, 0, 0, 6), embeddings=(Embeddings(1, (7,)), Embeddings(2, (8,)))),
        "other": RequestInput((5, 0, 0, 6), embeddings=(Embeddings(1, (7, 9)),)),
    }
    prefixes = Prefixes(requests, 1)
    names = [[prefixes.name(request, end) for request in requests] for end in (1, 2, 3, 4)]
    alike = ["embedded", "embedded", "embedded"]
    assert names[0] == ["plain[0:1]"] * 5
    assert [name.split("[")[0] for name in names[1]] == ["plain", *alike, "embedded"]
    for of_end in names[2:]:
        assert [name.split("[")[0] for name in of_end] == ["plain", *alike, "other"]


@pytest.mark.parametrize(
    ("prompt", "embeddings", "said"),
    [
        ((1, 0, 0), (Embeddings(2, (7,)), Embeddings(1, (7,))), "ordered by offset"),
        ((1, 0, 0), EMBEDDED * 2, "must not overlap"),
        ((1, 0), EMBEDDED, "embeddings end at token 3, past the prompt's 2 tokens"),
        ((1, 0, 2), EMBEDDED, "token 2 of a prompt comes as an embedding and has the id 2; set"),
    ],
)
def test_embeddings_that_no_prompt_has(
    prompt: tuple[int, ...], embeddings: tuple[Embeddings, ...], said: str
) -> None:
    with pytest.raises(HistoryError, match=re.escape(said)):
        RequestInput(prompt, embeddings=embeddings)


def test_a_history_written_by_hand() -> None:
    found = read(BY_HAND)
    assert found.requests["a"].prompt == (*range(1, 41), 7)
    assert [step.do for step in found.steps][:3] == ["schedule", "schedule", "lookup"]
    assert found.engine.alignment == 16
    assert read(write(found)) == found
    assert '"prompt": [[1, 40], 7]' in write(found)
    assert read(write(found)).about == "a prompt and its resend"


@given(st.integers(0, 100_000))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read(seed: int) -> None:
    generated = history(seed)
    assert read(write(generated)) == generated


def test_the_schema_describes_every_field() -> None:
    described = schema()
    for name in ("EngineConfiguration", "RequestInput", "Schedule", "Image"):
        for field in described["$defs"][name]["properties"].values():
            assert "description" in field or "const" in field, name


@cases("old, new, sentence")
def test_bad_histories_get_one_sentence(old: str, new: str, sentence: str) -> None:
    text = BY_HAND.replace(old, new, 1)
    assert text != BY_HAND
    with pytest.raises(HistoryError) as refused:
        read(text, "bad.json")
    message = str(refused.value)
    assert message.startswith("bad.json")
    assert sentence in message
    assert "\n" not in message


def test_one_group_is_hashed_in_its_blocks() -> None:
    data = json.loads(BY_HAND)
    data["engine"]["groups"].pop()
    data["engine"]["hash_block_size"] = 8
    data["steps"] = []
    with pytest.raises(HistoryError, match="with one group the hash block size is the block size"):
        read(json.dumps(data))
