"""Policies of a target: those of its release, and those that it shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hitproof.conformance.judge.policy_costs import Cost, costs
from hitproof.spec.releases.policies import POLICIES, Policy
from hitproof.vllm_integration.sandbox.driver import Limits, Worker
from hitproof.vllm_integration.targets.target import Target

NOT_IN_HISTORIES = {
    "default_retention": "a history states what its engine retains, and so does a live engine"
}
"""The policies that decide nothing while a manager runs, and why."""


class CannotProbe(Exception):
    """The target's policies cannot be determined; the message says why."""


@dataclass(frozen=True)
class Standing:
    """One policy of a target: what its release has, what it shows, and what was chosen.

    Attributes:
        policy: the policy.
        expected: the value that the target's release has by the table; None without a target.
        actual: the value by how the target behaves; None without a target.
        chosen: the value that the user asks for; None when that is left to the target.
    """

    policy: Policy
    expected: str | None = None
    actual: str | None = None
    chosen: str | None = None

    @property
    def in_force(self) -> str | None:
        """The value that the target is judged by."""
        return self.actual if self.chosen is None else self.chosen

    @property
    def agrees(self) -> bool:
        """Whether the target behaves as the table says."""
        return self.expected == self.actual

    @property
    def asked_for(self) -> str | None:
        """The value that the target should show: that of its release, or the chosen one.

        None where the checks judge by the chosen one, and so find out themselves what differs.
        """
        if self.chosen is None:
            return self.expected
        return self.chosen if self.policy.name in NOT_IN_HISTORIES else None


def expected_value(policy: Policy, version: str | None) -> str:
    """The value that a release has; None, a version not known, has that of the newest."""
    if version is None:
        return policy.eras[-1].value
    release = Version(Version(version).base_version)
    return next(e.value for e in policy.eras if SpecifierSet(e.releases).contains(release))


def best_values() -> dict[str, str]:
    """The best value of each policy that has one, by name."""
    return {name: str(each.best) for name, each in POLICIES.items() if each.best is not None}


class UnknownPolicy(ValueError):
    """There is no such policy or value; the message is one sentence that names the valid ones."""


def chosen_values(texts: Sequence[str], *, for_histories: bool = False) -> dict[str, str]:
    """Policies and values, each written ``NAME=VALUE``; raises `UnknownPolicy` with the valid ones.

    With ``for_histories`` those that decide nothing there are not valid either.
    """
    chosen = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if name not in POLICIES:
            raise UnknownPolicy(f"there is no policy {name!r}; name one of {', '.join(POLICIES)}")
        values = [str(era.value) for era in POLICIES[name].eras]
        if not equals or value not in values:
            raise UnknownPolicy(
                f"the policy {name} has no value {value!r}; write "
                + " or ".join(f"'{name}={valid}'" for valid in values)
            )
        if for_histories and name in NOT_IN_HISTORIES:
            raise UnknownPolicy(
                f"the policy {name} decides nothing here ({NOT_IN_HISTORIES[name]}); leave it out"
            )
        chosen[name] = value
    return chosen


def held_against(
    target: Target, actual: Mapping[str, str], chosen: Mapping[str, str]
) -> list[Standing]:
    """Every policy, by how the target behaves and by what its release, or the user, says."""
    return [
        Standing(policy, expected_value(policy, target.version), actual[name], chosen.get(name))
        for name, policy in POLICIES.items()
    ]


def costs_of(standings: Sequence[Standing]) -> dict[str, Cost]:
    """What each policy in force costs that has a best value and another one, by name.

    Empty without a target, or if a policy is not known.
    """
    values = {
        standing.policy.name: standing.in_force
        for standing in standings
        if standing.in_force is not None
    }
    return costs(values) if values.keys() == POLICIES.keys() else {}


def standings(target: Target | None, limits: Limits) -> list[Standing]:
    """Every policy, with the target's value by the table and by behaviour.

    Raises `CannotProbe`, and the exceptions of `Worker`.
    """
    if target is None:
        return [Standing(policy) for policy in POLICIES.values()]
    with Worker(target, limits) as worker:
        answer = worker.ask(limits.timeout, op="policies")
    if answer["detail"]:
        raise CannotProbe(str(answer["detail"]))
    return held_against(target, answer["policies"], {})
