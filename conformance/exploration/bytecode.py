"""Bytecode: where an instruction of a function may continue, and how deep its stack is there."""

import dis
import functools
from collections.abc import Callable
from itertools import pairwise
from types import CodeType
from typing import Any, Concatenate, ParamSpec, TypeVar

_LEAVES = ("RETURN_", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE")
_GENERATES = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


_More = ParamSpec("_More")
_Value = TypeVar("_Value")


def of_code(
    function: Callable[Concatenate[CodeType, _More], _Value],
) -> Callable[Concatenate[CodeType, _More], _Value]:
    """A memo of what depends on code, which is kept: it is told by its address.

    To hash code takes time in proportion to its length.
    """
    known: dict[Any, tuple[CodeType, _Value]] = {}

    @functools.wraps(function)
    def remembered(code: CodeType, /, *more: _More.args, **named: _More.kwargs) -> _Value:
        assert not named
        key = id(code), more
        held = known.get(key)
        if held is None:
            held = known[key] = code, function(code, *more, **named)
        return held[1]

    return remembered


@of_code
def instructions(code: CodeType) -> dict[int, dis.Instruction]:
    """The instructions of ``code`` by their offsets."""
    return {each.offset: each for each in dis.get_instructions(code)}


@of_code
def instruction_at(code: CodeType, offset: int) -> dis.Instruction:
    """The instruction at ``offset``, or the one whose cache entries are there."""
    known = instructions(code)
    return known[max(each for each in known if each <= offset)]


def is_generator(code: CodeType) -> bool:
    """Whether calls of ``code`` give a generator or coroutine."""
    return bool(code.co_flags & _GENERATES)


def jumps_to(instruction: dis.Instruction) -> int | None:
    """Where the instruction may jump to."""
    if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
        return int(instruction.argval)
    return None


def falls_through(instruction: dis.Instruction) -> bool:
    """Whether the instruction may be followed by the next one."""
    return not instruction.opname.startswith(_LEAVES)


@of_code
def depth_before(code: CodeType) -> dict[int, int]:
    """The depth of the stack before each reachable instruction.

    Raises ValueError where two ways to an instruction leave different depths.
    """
    known = instructions(code)
    offsets = list(known)
    following = dict(pairwise(offsets))
    handlers = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]  # missing stub
    depths: dict[int, int] = {}
    todo = [(offsets[0], 0)]
    while todo:
        offset, depth = todo.pop()
        if offset in depths:
            if depths[offset] != depth:
                raise ValueError(f"two depths of the stack at {offset} of {code.co_qualname}")
            continue
        depths[offset] = depth
        instruction = known[offset]
        # The value sent to a generator is on its stack when it starts.
        started = instruction.opname == "RETURN_GENERATOR"
        for jump, target in ((True, jumps_to(instruction)), (False, following.get(offset))):
            if target is not None and (jump or falls_through(instruction)):
                todo.append((target, depth + started + _effect(instruction, jump)))
        for entry in handlers:
            if entry.start <= offset < entry.end:
                todo.append((entry.target, entry.depth + int(entry.lasti) + 1))
    return depths


@of_code
def depth_below_call(code: CodeType, offset: int) -> int | None:
    """How many values the stack keeps while the instruction at ``offset`` calls something.

    None where that is not known: the instruction gives nothing back, or is never reached.
    """
    instruction = instruction_at(code, offset)
    try:
        depth = depth_before(code).get(instruction.offset)
    except ValueError:
        return None
    return None if depth is None else depth + _effect(instruction, False) - 1


def _effect(instruction: dis.Instruction, jump: bool) -> int:
    argument = instruction.arg if instruction.opcode >= dis.HAVE_ARGUMENT else None
    return dis.stack_effect(instruction.opcode, argument, jump=jump)
