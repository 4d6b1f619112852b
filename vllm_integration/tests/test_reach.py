"""How far a change reaches: by the names that functions mention, in classes and modules."""

from pathlib import Path

import pytest

from hitproof.conformance.tests.editing import programs
from hitproof.vllm_integration.targets.reach import CORE, Reach, reach

TEXT = programs(__file__)["TEXT"]
FUNCTIONS = {
    *("Pool.__init__", "Pool.__len__", "Pool.count", "Shared.__init__", "Shared.alone"),
    *("Item.__init__", "made", "rounded", "lower"),
}


def reached(old: str, new: str, tmp_path: Path) -> Reach:
    """What a replacement in the text reaches."""
    assert old in TEXT
    for name, text in (("base", TEXT), ("head", TEXT.replace(old, new, 1))):
        (tmp_path / name / CORE).mkdir(parents=True)
        (tmp_path / name / CORE / "pool.py").write_text(text)
    return reach(tmp_path / "base", tmp_path / "head")


@pytest.mark.parametrize(
    ("old", "new", "changed", "callers"),
    [
        ("return 1", "return 2", {"Pool.count"}, {"Pool.__init__", "Shared.__init__", "made"}),
        ("How many.", "Its number.", set(), set()),
        ("= 3", "= 4", {"LIMIT"}, {"Shared.alone"}),
        ("return LIMIT", "return 3", {"Shared.alone"}, set()),
        ("self.count()", "1", {"Pool.__init__"}, {"Shared.__init__", "made"}),
        (" = 1\n", " = 2\n", {"Pool.size"}, {"Shared.__init__", "made"}),
        ("(Pool[Item]):", "(Pool, list):", {"Shared"}, {"made"}),
        ("number = 0", "number = 1", {"Item.__init__"}, {"made"}),
        ("math", "numpy", {"ceil", "down"}, {"rounded", "lower"}),
        ("def lower(number):", "def lower(number=0):", {"lower"}, set()),
        ("def lower", "def upper", {"lower", "upper"}, set()),
        ("return 0", "return 1", {"Pool.__len__"}, FUNCTIONS - {"Pool.__len__"}),
    ],
)
def test_what_a_change_reaches(
    old: str, new: str, changed: set[str], callers: set[str], tmp_path: Path
) -> None:
    found = reached(old, new, tmp_path)
    assert {name for _, name in found.changed} == changed
    assert {*found.callers} == callers
    kept = FUNCTIONS - changed - callers
    assert found.same == len(kept)
