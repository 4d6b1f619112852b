"""Structured faults: each kind is made, takes effect, and is the same every time."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from hitproof.conformance.mutation import Mutant
from hitproof.conformance.structured.edits import Fault
from hitproof.conformance.structured.faults import EFFECTIVE, faults
from hitproof.conformance.structured.scopes import Vocabulary
from hitproof.conformance.tests.editing import programs

SUBJECT = programs(__file__)["SUBJECT"]
VOCABULARY = Vocabulary(
    conditions=(
        "group_id > 0",
        "self.nothing",
        "unknown > 1",
        "self.spec is not None",
        "self.kind()",
    ),
    class_conditions=("isinstance(self.spec, Full)",),
    sizes=("self.block_size",),
    groups=("sizes",),
    group=("group_id",),
    unordered=("marks",),
    sources=(SUBJECT,),
)


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    path: Path = tmp_path_factory.mktemp("subject") / "faulted.py"
    path.write_text(SUBJECT)
    spec = importlib.util.spec_from_file_location("faulted", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["faulted"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["faulted"]


def of(module: ModuleType, function: str, most: int = 1000) -> list[Mutant]:
    return list(faults(module, {function: most}, VOCABULARY))


def afters(module: ModuleType, function: str, fault: Fault) -> set[str]:
    return {mutant.after for mutant in of(module, function) if mutant.change is fault}


@pytest.mark.parametrize(
    ("function", "fault", "after"),
    [
        (
            "Base.tokens",
            Fault.BOUNDARY,
            "end_tokens = num_blocks * self.block_size; end_tokens -= self.block_size",
        ),
        ("Base.tokens", Fault.SIBLING, "end_tokens = num_other_blocks * self.block_size"),
        ("Base.tokens", Fault.SIBLING, "end_tokens = num_blocks * self.hash_block_size"),
        (
            "Base.tokens",
            Fault.STATE,
            "return self.__dict__.setdefault('_fault_memo', {}).setdefault(num_blocks, end_tokens)",
        ),
        ("Base.groups", Fault.DROPPED, "for size in list(self.sizes)[1:]:"),
        ("Base.groups", Fault.ORDER, "found.insert(0, size + self.sizes[group_id])"),
        ("Base.groups", Fault.OTHER_GROUP, "found.append(size + self.sizes[0])"),
        (
            "Base.groups",
            Fault.SOMETIMES,
            "if group_id > 0: found.append(size - self.sizes[group_id])",
        ),
        ("Base.kind", Fault.CLASS, "if False:"),
        ("Base.kind", Fault.CLASS, "if isinstance(self.spec, Full): if False:"),
        ("Base.write", Fault.OMITTED, "pass"),
        ("Base.write", Fault.TWICE, "self.log.append(value); self.log.append(value)"),
        ("Base.write", Fault.ORDER, "self.last = len(self.log); self.log.append(value)"),
        ("Base.hashes", Fault.KEY, "return block_hashes[i - 1]"),
    ],
)
def test_faults_of_each_kind(module: ModuleType, function: str, fault: Fault, after: str) -> None:
    assert after in afters(module, function, fault)


def test_what_would_change_nothing_is_no_fault(module: ModuleType) -> None:
    reverse = "for block in list(self.blocks())[::-1]:"
    assert reverse in afters(module, "Base.order", Fault.ORDER)
    assert reverse not in afters(module, "Base.mark", Fault.ORDER)
    assert not afters(module, "Base.mark", Fault.TWICE)
    assert not afters(module, "Base.choose", Fault.TWICE) | afters(
        module, "Base.choose", Fault.ORDER
    )
    assert not any(m.before.startswith("del") for m in of(module, "Base.mark"))
    # In any order the same: a set, and turns that are each about its own entry.
    assert not any("[::-1]" in after for after in afters(module, "Base.evict", Fault.ORDER))


def test_what_only_asserts_is_not_left_out(module: ModuleType) -> None:
    left_out = {m.before for m in of(module, "Base.never") if m.change is Fault.OMITTED}
    assert left_out == {"if mark < 0:"}


def test_what_is_always_the_same_may_be_kept(module: ModuleType) -> None:
    kept = afters(module, "Base.half", Fault.STATE)
    assert any(after.startswith("blocks = self.__dict__") for after in kept)
    assert not any(after.startswith(("least", "return")) for after in kept)


def test_conditions_are_those_in_reach(module: ModuleType) -> None:
    found = " ".join(mutant.after for mutant in of(module, "Base.groups"))
    assert "if group_id > 0: " in found
    assert "nothing" not in found
    assert "unknown" not in found
    # Classes tell subclasses apart, so only methods of a base get them.
    assert "Full" in " ".join(mutant.after for mutant in of(module, "Base.kind"))
    assert "Full" not in " ".join(mutant.after for mutant in of(module, "Child.write"))


def test_no_condition_is_the_opposite_of_the_one_that_leads_there(module: ModuleType) -> None:
    made = {(m.before, m.after) for m in of(module, "Base.unless")}
    condition = "if group_id > 0: pass"
    assert ("self.log.append(0)", condition) in made
    assert ("if not group_id > 0:", condition) not in made
    assert ("self.log.append(group_id)", condition) not in made
    assert ("self.log.append(1)", condition) not in made
    assert ("self.log.append(2)", condition) not in made


def test_only_what_has_a_length_is_counted(module: ModuleType) -> None:
    given = replace(VOCABULARY, conditions=("len(one) > 2", "len(marks) > 2"))
    made = " ".join(each.after for each in faults(module, {"Other.join": 1000}, given))
    assert "len(marks) > 2" in made
    assert "len(one)" not in made


def test_what_a_vocabulary_excludes_is_not_made(module: ModuleType) -> None:
    def found(vocabulary: Vocabulary, fault: Fault) -> set[str]:
        made = faults(module, {"Base.write": 1000}, vocabulary)
        return {mutant.after for mutant in made if mutant.change is fault}

    given = replace(VOCABULARY, conditions=("len(self.log) > 2",))
    assert any("len(self.log)" in after for after in found(given, Fault.TWICE))
    never = replace(given, never={"Base": re.compile(r"len\(self\.log\)")})
    assert found(never, Fault.TWICE)
    assert not any("len(self.log) >" in after for after in found(never, Fault.TWICE))
    assert not found(replace(given, idempotent=re.compile(r"\.append\(")), Fault.TWICE)


def test_a_constructor_reads_no_attribute_that_is_not_set_yet(module: ModuleType) -> None:
    def conditions(function: str, before: str) -> set[str]:
        found = (m.after for m in of(module, function) if m.before == before)
        return {after.partition(":")[0] for after in found if after.startswith("if ")}

    condition = "if self.spec is not None"
    assert conditions("Base.__init__", "size = block_size") == set()
    assert condition in conditions("Base.__init__", "self.group_id = 3")
    assert conditions("Child.__init__", "first = block_size") == set()
    assert condition in conditions("Child.__init__", "self.limit_size = block_size")
    assert condition in conditions("Base.write", "self.log.append(value)")


def test_a_fault_takes_effect_on_its_condition_and_leaves_no_trace(module: ModuleType) -> None:
    (mutant,) = (
        mutant
        for mutant in of(module, "Base.groups")
        if mutant.after == "if group_id > 0: for size in list(self.sizes)[:-1]:"
    )
    base = module.Base(2, module.Full())
    assert base.groups(1) == [12, 16]
    with mutant.applied():
        assert base.groups(0) == [8, 12]
        assert base.groups(1) == [12]
    assert base.groups(1) == [12, 16]
    assert EFFECTIVE not in vars(module)


def test_a_probe_records_whether_the_condition_holds_and_changes_nothing_else(
    module: ModuleType,
) -> None:
    mutant = next(
        m for m in of(module, "Base.groups") if m.after.startswith("if group_id > 0: for size in")
    )
    assert mutant.probe is not None
    probe, base = replace(mutant, code=mutant.probe()), module.Base(2, module.Full())
    with probe.applied():
        assert base.groups(0) == [8, 12]
        assert EFFECTIVE not in vars(module)
        assert base.groups(1) == [12, 16]
    assert vars(module).pop(EFFECTIVE) is True
    assert all(m.probe is None for m in of(module, "Base.tokens") if "if " not in m.after)


def test_state_is_kept_with_the_object(module: ModuleType) -> None:
    (mutant,) = (
        mutant
        for mutant in of(module, "Base.tokens")
        if mutant.after.startswith("return self.") and "setdefault(num_other_blocks" in mutant.after
    )
    first, second = module.Base(2, None), module.Base(2, None)
    with mutant.applied():
        assert [first.tokens(1, 0), first.tokens(2, 0), second.tokens(2, 0)] == [2, 2, 4]


def test_state_of_a_constructor_is_kept_with_the_module(module: ModuleType) -> None:
    kept = afters(module, "Base.__init__", Fault.STATE)
    assert any("= globals().setdefault(" in after for after in kept)
    assert not any("self.__dict__" in after for after in kept)


def test_super_is_called_without_arguments(module: ModuleType) -> None:
    child = module.Child(2, None)
    (twice,) = (
        m for m in of(module, "Child.write") if m.change is Fault.TWICE and "if" not in m.after
    )
    with twice.applied():
        child.write(5)
    assert child.log == [5, 5]


def test_what_is_not_judged_stays(module: ModuleType) -> None:
    vocabulary = Vocabulary(unjudged=re.compile(r"\.append"), certain=re.compile("isinstance"))
    found = list(faults(module, {"Base.write": 1000, "Base.kind": 1000}, vocabulary))
    assert found
    assert not any("append" in mutant.before for mutant in found)


def test_few_are_chosen_and_always_the_same(module: ModuleType) -> None:
    chosen = of(module, "Base.groups", 2)
    assert [m.name for m in chosen] == [m.name for m in of(module, "Base.groups", 2)]
    by_kind = [m.change for m in chosen]
    assert {by_kind.count(fault) for fault in by_kind} <= {1, 2}
    every = [mutant.name for mutant in of(module, "Base.groups")]
    assert len(every) == len(set(every)) > len(chosen)
    assert {mutant.name for mutant in chosen} <= set(every)
