"""The kinds of campaigns, a row each."""

from hitproof.vllm_integration.campaign import histories
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
            endless=True,
        ),
    )
}
