"""Which local variables of a suspended function can still be read.

A variable that is written again before it is read does not decide what the function does next.
This is the textbook backward data-flow analysis (Aho et al., Compilers, section 9.2.5) over the
function's bytecode, as `dis` shows it.
"""

import dis
import re
from types import CodeType

from hitproof.conformance.exploration.bytecode import (
    falls_through,
    instruction_at,
    jumps_to,
    of_code,
)


@of_code
def live_after(code: CodeType, offset: int) -> frozenset[str]:
    """Names of the locals of ``code`` that may be read after the instruction at ``offset``.

    Variables shared with inner functions always may, and so may the first one of a method that
    calls ``super`` without arguments, by whatever name. What shows all variables of a frame is not
    among what a watched lookup may call.
    """
    shared = frozenset(code.co_cellvars + code.co_freevars)
    if "__class__" in shared:
        shared |= {*code.co_varnames[:1]}
    return shared | _live_after_each(code)[instruction_at(code, offset).offset]


@of_code
def _live_after_each(code: CodeType) -> dict[int, frozenset[str]]:
    instructions = list(dis.get_instructions(code))
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # missing stub
    followers: dict[int, list[int]] = {}
    for position, instruction in enumerate(instructions):
        after = [entry.target for entry in entries if entry.start <= instruction.offset < entry.end]
        if (target := jumps_to(instruction)) is not None:
            after.append(target)
        if falls_through(instruction) and position + 1 < len(instructions):
            after.append(instructions[position + 1].offset)
        followers[instruction.offset] = after
    before: dict[int, frozenset[str]] = {i.offset: frozenset() for i in instructions}
    changed = True
    while changed:
        changed = False
        for instruction in reversed(instructions):
            live = _join(before, followers[instruction.offset])
            live = _live_before(instruction, live)
            if live != before[instruction.offset]:
                before[instruction.offset] = live
                changed = True
    return {offset: _join(before, after) for offset, after in followers.items()}


def _join(before: dict[int, frozenset[str]], offsets: list[int]) -> frozenset[str]:
    return frozenset[str]().union(*(before.get(offset, frozenset()) for offset in offsets))


def _live_before(instruction: dis.Instruction, live: frozenset[str]) -> frozenset[str]:
    """One step back over an instruction, which from 3.13 on may touch two variables."""
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
    kinds = re.findall("(LOAD|STORE|DELETE)_FAST", instruction.opname)
    for name, kind in reversed(list(zip(names, kinds, strict=False))):
        # To delete one that has no value is an error, so it asks whether there is one.
        live = live - {name} if kind == "STORE" else live | {name}
    return live
