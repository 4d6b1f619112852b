"""The kinds of campaigns, a row each."""

from hitproof.vllm_integration.campaign import histories, selftest, simulate, survey
from hitproof.vllm_integration.campaign.plans import Kind, one_target

KINDS = {
    kind.name: kind
    for kind in (
        Kind.of("histories", histories, one_target(histories.facts), {"seed"}, endless=True),
        Kind.of("selftest", selftest, one_target(selftest.facts), {"family", "quick", "thorough"}),
        Kind.of("survey", survey, survey.prepare, {"quick", "thorough"}),
        Kind.of("simulate", simulate, simulate.prepare, set()),
    )
}
