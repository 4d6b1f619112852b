"""What a scheduler publishes about its pools, and each way in which that can be wrong."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.event_descriptions import DEVICE, HOST
from hitproof.conformance.scheduling.events import PublishedEvents
from hitproof.conformance.subject.managers import Cleared, Event, Removed, Stored
from hitproof.spec.groups import Group, GroupKind

ENGINE = EngineConfiguration((Group(GroupKind.FULL_ATTENTION, 2),), 9, 2, 32)
REQUESTS = {
    "a": RequestInput((1, 2, 3, 4)),
    "b": RequestInput((5, 6), lora_name="x"),
    "c": RequestInput((7, 8), lora_name="y"),
}
PREFIXES = Prefixes(REQUESTS, 2)
ONE, TWO = PREFIXES.name("a", 2), PREFIXES.name("a", 4)
FIRST = Stored(0, (ONE,), None, (1, 2), 2, None, None, "full_attention", medium=DEVICE)
NEXT = Stored(0, (TWO,), ONE, (3, 4), 2, None, None, "full_attention", medium=DEVICE)
GONE = Removed(0, (TWO,), DEVICE)
MOVED = replace(NEXT, medium=HOST)


def of_adapter(name: str, number: int | None, said: str) -> Stored:
    """The event about a request with an adapter, which says another or the same."""
    tokens = REQUESTS[name].token_ids
    key = PREFIXES.name(name, 2)
    return replace(
        FIRST, keys=(key,), token_ids=tokens, lora_name=said, lora_id=number, says_numbers=True
    )


def codes(
    events: Sequence[tuple[str, Event]], device: Sequence[str], host: Sequence[str] = ()
) -> set[Code]:
    """What is wrong with events, where in the end these prefixes are cached."""
    pools = {
        DEVICE: {(0, name): (number,) for number, name in enumerate(device)},
        HOST: {(0, name): (number,) for number, name in enumerate(host)},
    }
    found = PublishedEvents(ENGINE, REQUESTS, PREFIXES).wrong(events, pools)
    return {Code(each.signature.code) for each in found}


@pytest.mark.parametrize(
    ("events", "device", "host"),
    [
        ([], [], []),
        ([(DEVICE, FIRST), (DEVICE, NEXT)], [ONE, TWO], []),
        ([(DEVICE, FIRST), (DEVICE, NEXT), (HOST, MOVED), (DEVICE, GONE)], [ONE], [TWO]),
        ([(DEVICE, FIRST), (DEVICE, Cleared()), (DEVICE, FIRST)], [ONE], []),
        ([(DEVICE, replace(FIRST, medium=None))], [ONE], []),
        ([(DEVICE, of_adapter("b", 1, "x"))], [PREFIXES.name("b", 2)], []),
    ],
)
def test_what_leads_to_what_is_cached_is_right(
    events: list[tuple[str, Event]], device: list[str], host: list[str]
) -> None:
    assert not codes(events, device, host)


@pytest.mark.parametrize(
    ("events", "device", "host", "code"),
    [
        ([(DEVICE, FIRST)], [ONE, TWO], [], Code.EVENTS_WRONG),
        ([(DEVICE, FIRST), (DEVICE, FIRST)], [ONE], [], Code.EVENTS_WRONG),
        ([(DEVICE, GONE)], [], [], Code.EVENTS_WRONG),
        ([(DEVICE, FIRST), (DEVICE, Cleared())], [ONE], [], Code.EVENTS_WRONG),
        ([(HOST, MOVED)], [TWO], [], Code.EVENTS_WRONG),
        ([(HOST, NEXT)], [], [TWO], Code.EVENT_DESCRIPTION_WRONG),
        ([(HOST, MOVED), (HOST, GONE)], [], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(FIRST, token_ids=(1, 3)))], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(FIRST, block_size=4))], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(NEXT, parent=TWO))], [TWO], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(FIRST, kind="mamba"))], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
        (
            [(DEVICE, of_adapter("b", None, "x"))],
            [PREFIXES.name("b", 2)],
            [],
            Code.EVENT_DESCRIPTION_WRONG,
        ),
        (
            [(DEVICE, of_adapter("b", 1, "x")), (DEVICE, of_adapter("c", 1, "y"))],
            [PREFIXES.name("b", 2), PREFIXES.name("c", 2)],
            [],
            Code.EVENT_DESCRIPTION_WRONG,
        ),
    ],
)
def test_what_is_published_wrong_is_seen(
    events: list[tuple[str, Event]], device: list[str], host: list[str], code: Code
) -> None:
    assert codes(events, device, host) == {code}
