"""What events tell who follows them, and each way in which that can be wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest

from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.histories.naming import Prefixes
from hitproof.conformance.histories.schema import EngineConfiguration, RequestInput
from hitproof.conformance.judge.event_descriptions import DEVICE, HOST, EventDescriptions
from hitproof.conformance.judge.followers import Follower
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
BOTH = replace(NEXT, parent=None, token_ids=(1, 2, 3, 4))
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
    events: Sequence[tuple[str, Event]],
    device: Sequence[str],
    host: Sequence[str] = (),
    before: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    engine: EngineConfiguration = ENGINE,
    fine: bool = False,
) -> set[Code]:
    """What is wrong with events, where in the end these prefixes are cached."""
    pools = {
        DEVICE: {(0, name): (number,) for number, name in enumerate(device)},
        HOST: {(0, name): (number,) for number, name in enumerate(host)},
    }
    descriptions = {
        medium: EventDescriptions(engine, REQUESTS, PREFIXES, fine, medium)
        for medium in (DEVICE, HOST)
    }
    follower = Follower(engine.groups, PREFIXES, descriptions)
    follower.starts_from({(0, name): ids for name, ids in before.items()})
    return {code for code, _, _ in follower.wrong(events, pools)}


@pytest.mark.parametrize(
    ("events", "device", "host"),
    [
        ([], [], []),
        ([(DEVICE, FIRST), (DEVICE, NEXT)], [ONE, TWO], []),
        ([(DEVICE, FIRST), (DEVICE, FIRST)], [ONE], []),
        ([(DEVICE, replace(BOTH, block_size=4))], [TWO], []),
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
        ([(DEVICE, NEXT), (DEVICE, FIRST)], [ONE, TWO], [], Code.EVENTS_WRONG),
        ([(DEVICE, NEXT)], [TWO], [], Code.EVENT_PARENT_UNKNOWN),
        ([(DEVICE, BOTH)], [TWO], [], Code.EVENT_SPANS_OTHER_BLOCKS),
        ([(DEVICE, replace(FIRST, keys=()))], [], [], Code.EVENT_SPANS_OTHER_BLOCKS),
        ([(DEVICE, GONE)], [], [], Code.EVENTS_WRONG),
        ([(DEVICE, FIRST), (DEVICE, Cleared())], [ONE], [], Code.EVENTS_WRONG),
        ([(HOST, replace(FIRST, medium=HOST))], [ONE], [], Code.EVENTS_WRONG),
        ([(HOST, NEXT)], [], [TWO], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, FIRST), (HOST, MOVED), (HOST, GONE)], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(FIRST, token_ids=(1, 3)))], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(FIRST, block_size=4))], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
        ([(DEVICE, replace(FIRST, block_size=1))], [ONE], [], Code.EVENT_DESCRIPTION_WRONG),
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


def test_a_copy_that_stays_is_not_forgotten() -> None:
    copies = {ONE: (1, 2)}
    gone = Removed(0, (ONE,), DEVICE)
    assert codes([(DEVICE, gone)], [ONE], before=copies) == {Code.EVENT_FORGETS_COPY}
    assert not codes([], [ONE], before=copies)
    assert not codes([(DEVICE, gone), (DEVICE, gone)], [], before=copies)
    # Its only block was removed, and no event says that it is stored again.
    assert codes([(DEVICE, gone)], [ONE], before={ONE: (1,)}) == {Code.EVENTS_WRONG}


def test_events_of_several_groups_name_theirs() -> None:
    several = replace(ENGINE, groups=(*ENGINE.groups, Group(GroupKind.SLIDING_WINDOW, 2, 2)))
    unsaid = replace(FIRST, group=None, kind=None)
    assert codes([(DEVICE, unsaid)], [ONE], engine=several) == {Code.EVENT_GROUP_UNKNOWN}
    assert not codes([(DEVICE, unsaid)], [ONE])


def test_an_event_of_a_block_in_part_begins_where_one_ended() -> None:
    larger = replace(ENGINE, groups=(Group(GroupKind.FULL_ATTENTION, 8), *ENGINE.groups))
    whole = replace(BOTH, block_size=4)
    assert not codes([(DEVICE, whole)], [TWO], engine=larger, fine=True)
    found = codes([(DEVICE, NEXT)], [TWO], engine=larger, fine=True)
    assert found == {Code.EVENT_BEGINS_INSIDE_BLOCK}
