"""What a step does with images: right steps, and wrong ones."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from hitproof.conformance.histories.schema import EngineConfiguration, Image
from hitproof.conformance.histories.workloads import Arrival, Deployment, Encoder
from hitproof.conformance.scheduling.images import EncoderOutputs
from hitproof.conformance.scheduling.steps import Situation, StepRules
from hitproof.conformance.subject.schedulers import Plan, Scheduled
from hitproof.spec.groups import Group, GroupKind

FULL = Group(GroupKind.FULL_ATTENTION, 4)
PLAIN = Deployment((FULL,), 400, 64, 16, max_num_seqs=2, encoder=Encoder(10, 12))
STATES = replace(PLAIN, groups=(FULL, Group(GroupKind.MAMBA, 4)))
WHOLE = replace(PLAIN, encoder=Encoder(10, 12, whole_images=True))
DRAFTS = replace(PLAIN, speculative_method="eagle", num_speculative_tokens=1)
MODULES = replace(PLAIN, speculative_method="mtp", num_speculative_tokens=3, num_mtp_modules=3)
CAT, DOG = Image("cat", 6, 8), Image("dog", 16, 8)
ARRIVALS = {
    "a": Arrival(tuple(range(40)), (1,), images=(CAT, DOG)),
    "b": Arrival(tuple(range(40)), (1,), images=(CAT,)),
    "c": Arrival(tuple(range(100, 140)), (1,), images=(CAT, replace(DOG, offset=14))),
}
CACHE = "step-exceeds-limit(limit=encoder-cache)"


def plan(
    name: str, start: int, tokens: int, encoded: Sequence[int] = (), freed: Sequence[str] = ()
) -> Plan:
    step = Scheduled(name, start, tokens, 0, ((7,),), start == 0, start == 0)
    return Plan((step,), encoded={name: tuple(encoded)}, freed=tuple(freed))


def wrong(deployment: Deployment, *plans: Plan) -> list[str]:
    """What is wrong with steps, each of one request, which goes on or ends."""
    heads = deployment.has_draft_head
    ahead = replace(FULL, prefill_lookahead=deployment.num_mtp_modules)
    groups = (ahead, *deployment.groups[1:])
    engine = EngineConfiguration(groups, 400, 4, 64, 16, use_eagle=heads)
    rules = StepRules(deployment, engine, ARRIVALS, 1, 0)
    found: list[str] = []
    before: list[str] = []
    for each in plans:
        names = [one.request for one in each.scheduled]
        ran = [name for name in before if name in names]
        now = Situation(ran, names, dict.fromkeys(names, 40), 300, 300)
        found += [str(one.signature.defect) for one in rules.judge(each, now)]
        before = names
    return found


@pytest.mark.parametrize(
    ("deployment", "plans"),
    [
        # Both do not fit into the budget; the second one does later, when the first one is passed.
        (PLAIN, [plan("a", 0, 16, [0]), plan("a", 16, 16, [1], ["cat"])]),
        (PLAIN, [plan("b", 0, 16, [0]), plan("b", 16, 16)]),
        # Another request finds what is kept.
        (PLAIN, [plan("a", 0, 16, [0]), plan("b", 0, 16)]),
        # A chunk ends at the end of a block, before the image that does not fit.
        (STATES, [plan("c", 0, 12, [0])]),
        (WHOLE, [plan("a", 0, 16, [0]), plan("a", 16, 16, [1], ["cat"])]),
        # A chunk that would end inside the image ends before it.
        (
            replace(WHOLE, max_num_batched_tokens=12),
            [plan("a", 0, 6), plan("a", 6, 10, [0]), plan("a", 16, 12, [1], ["cat"])],
        ),
        # Draft layers read the first token of the image with the last one before it.
        (DRAFTS, [plan("a", 0, 15, [0])]),
        # Each module reads a token more.
        (MODULES, [plan("a", 0, 13, [0])]),
        (replace(MODULES, encoder=Encoder(16, 16)), [plan("a", 0, 16, [0, 1])]),
    ],
)
def test_steps_that_are_right(deployment: Deployment, plans: Sequence[Plan]) -> None:
    assert not wrong(deployment, *plans)


@pytest.mark.parametrize(
    ("deployment", "plans", "defects"),
    [
        (PLAIN, [plan("b", 0, 16)], ["encoder-output-missing(how=never, of=tokens)"]),
        (
            PLAIN,
            [plan("b", 0, 10, [0]), plan("b", 10, 16, (), ["cat"])],
            ["step-leaves-work(what=running)", "encoder-output-missing(how=freed, of=tokens)"],
        ),
        (DRAFTS, [plan("a", 0, 16, [0])], ["encoder-output-missing(how=full, of=drafts)"]),
        (MODULES, [plan("a", 0, 14, [0])], ["encoder-output-missing(how=full, of=drafts)"]),
        (
            replace(MODULES, max_num_batched_tokens=14, encoder=Encoder(16, 16)),
            [plan("a", 0, 14, [0])],
            ["encoder-output-missing(of=drafts)"],
        ),
        (
            replace(MODULES, max_num_batched_tokens=12),
            [plan("a", 0, 4)],
            ["encoder-output-missing(of=drafts)", "step-leaves-work(what=running)"],
        ),
        (PLAIN, [plan("a", 0, 16, [0, 1])], ["step-exceeds-limit(limit=encoder)", CACHE]),
        (PLAIN, [plan("a", 0, 16, [0]), plan("a", 16, 16, [1])], [CACHE]),
        (PLAIN, [plan("b", 0, 16, [0]), plan("b", 16, 16, [0])], ["image-encoded-again"]),
        # It has computed a part of the image, whose output must not be freed.
        (
            replace(PLAIN, max_num_batched_tokens=10),
            [plan("b", 0, 10, [0]), plan("b", 10, 10, [0], ["cat"])],
            ["image-encoded-again(which=begun)"],
        ),
        # Both images fit, and the chunk ends before the second one all the same.
        (
            replace(PLAIN, encoder=Encoder(16, 16)),
            [plan("c", 0, 14, [0])],
            ["step-leaves-work(what=running)"],
        ),
        (PLAIN, [plan("b", 0, 6)], ["step-leaves-work(what=running)"]),
        (STATES, [plan("c", 0, 8, [0])], ["step-leaves-work(states=mamba, what=running)"]),
        (WHOLE, [plan("b", 0, 13, [0])], ["image-split", "step-leaves-work(what=running)"]),
        (
            replace(WHOLE, max_num_batched_tokens=12),
            [plan("b", 0, 6), plan("b", 6, 7, [0])],
            ["image-split(which=first)", "step-leaves-work(what=running)"],
        ),
    ],
)
def test_steps_that_are_wrong(
    deployment: Deployment, plans: Sequence[Plan], defects: Sequence[str]
) -> None:
    assert wrong(deployment, *plans) == list(defects)


def test_an_image_that_must_be_whole_may_exceed_the_threshold() -> None:
    threshold = replace(WHOLE, long_prefill_token_threshold=4)
    exceeds = "step-exceeds-limit(limit=prompt)"
    text, cat, more = plan("b", 0, 4), plan("b", 6, 8, [0]), plan("b", 6, 9, [0])
    other = Scheduled("a", 0, 1, 0, ((7,),), True, True)

    def beside(each: Plan) -> Plan:
        return replace(each, scheduled=(*each.scheduled, other))

    assert exceeds not in wrong(threshold, beside(text), beside(cat))
    assert exceeds in wrong(threshold, beside(text), beside(more))
    parts = replace(threshold, encoder=PLAIN.encoder)
    assert exceeds in wrong(parts, beside(text), beside(cat))


def test_what_is_held_by_none_for_longest_makes_room_first() -> None:
    """The dog makes room though the cat was given up before it, unless that was held meanwhile."""
    engine = EngineConfiguration((FULL,), 400, 4, 64, 16)

    def found(waited: Sequence[str]) -> list[str]:
        outputs = EncoderOutputs(replace(PLAIN, encoder=Encoder(30, 30)), engine, ARRIVALS, 1)
        list(outputs.judge(plan("a", 0, 24, [0, 1])))
        seen: list[Mapping[str, Collection[str]]] = [{"dog": "a"}, {}, {}]
        said = [each for after in seen for each in outputs.held({}, after, ["a"], [])]
        list(outputs.judge(Plan((), freed=("dog",))))
        said += outputs.held({}, {}, [], waited)
        return [str(each.signature.defect) for each in said]

    assert found([]) == ["image-evicted-out-of-turn"]
    assert not found(["b"])
