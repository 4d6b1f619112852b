"""The table of policies: no release has two values, and none has no value."""

from enum import StrEnum

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hitproof.spec.releases.policies import POLICIES

RELEASES = [Version(f"0.{minor}.{micro}") for minor in range(40) for micro in range(3)]


def test_each_release_has_one_value_of_each_policy() -> None:
    for policy in POLICIES.values():
        for release in RELEASES:
            values = [era.value for era in policy.eras if release in SpecifierSet(era.releases)]
            assert len(values) == 1, (policy.name, release, values)


def test_eras_stand_in_order_and_name_each_value_once() -> None:
    for name, policy in POLICIES.items():
        assert policy.name == name
        assert policy.sentence.endswith(".")
        assert policy.symbols
        assert RELEASES[0] in SpecifierSet(policy.eras[0].releases)
        assert RELEASES[-1] in SpecifierSet(policy.eras[-1].releases)
        kinds: set[type[StrEnum]] = {type(era.value) for era in policy.eras}
        assert len(kinds) == 1
        assert {era.value for era in policy.eras} == set(kinds.pop())


def test_the_best_value_is_one_of_the_policy() -> None:
    best = {name: policy.best for name, policy in POLICIES.items() if policy.best is not None}
    assert best
    for name, value in best.items():
        assert value in [era.value for era in POLICIES[name].eras]
