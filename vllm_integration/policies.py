"""Policies of releases: what `spec.policies` says of a target, and how the target behaves."""

from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from spec.policies import POLICIES, Policy
from vllm_integration.driver import Worker
from vllm_integration.targets import Target


class CannotProbe(Exception):
    """The target's behaviour cannot be found out; the message says why."""


@dataclass(frozen=True)
class Standing:
    """One policy and what is known of it for a target.

    Attributes:
        policy: the policy.
        expected: the value that the target's release has by the table; None without a target.
        actual: the value by how the target behaves; None without a target.
    """

    policy: Policy
    expected: str | None = None
    actual: str | None = None

    @property
    def agrees(self) -> bool:
        """Whether the target behaves as the table says."""
        return self.expected == self.actual


def expected_value(policy: Policy, version: str | None) -> str:
    """The value that a release has; None, a version not known, has that of the newest."""
    if version is None:
        return policy.eras[-1].value
    release = Version(Version(version).base_version)
    return next(e.value for e in policy.eras if SpecifierSet(e.releases).contains(release))


def standings(target: Target | None, *, python: str, timeout: float, memory: int) -> list[Standing]:
    """Every policy, with the target's value by the table and by behaviour.

    Raises `CannotProbe`, and the exceptions of `Worker`.
    """
    if target is None:
        return [Standing(policy) for policy in POLICIES.values()]
    with Worker(target, python, memory) as worker:
        answer = worker.ask(timeout, op="policies")
    if answer["detail"]:
        raise CannotProbe(str(answer["detail"]))
    return [
        Standing(policy, expected_value(policy, target.version), str(answer["policies"][name]))
        for name, policy in POLICIES.items()
    ]
