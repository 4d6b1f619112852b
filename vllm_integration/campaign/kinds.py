"""The kinds of campaigns, a row each."""

from hitproof.vllm_integration.campaign import histories, selftest, survey
from hitproof.vllm_integration.campaign.plans import Kind, one_target

KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "histories",
            one_target(histories.facts),
            histories.plan,
            histories.work,
            histories.seen,
            histories.fold,
            frozenset({"seed"}),
            endless=True,
        ),
        Kind(
            "selftest",
            one_target(selftest.facts),
            selftest.plan,
            selftest.work,
            selftest.seen,
            selftest.fold,
            frozenset({"family", "quick", "thorough"}),
        ),
        Kind(
            "survey",
            survey.prepare,
            survey.plan,
            survey.work,
            survey.seen,
            survey.fold,
            frozenset({"quick", "thorough"}),
        ),
    )
}
