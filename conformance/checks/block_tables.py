"""What is wrong with the block tables that a lookup answers with, whatever is cached."""

from dataclasses import dataclass

from hitproof.conformance.exploration.symbolic import SymbolicBlock
from hitproof.conformance.findings.codes import Defect
from hitproof.conformance.findings.meaning import Code
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.layouts import Layout
from hitproof.conformance.subject.lookups import LookupAnswer
from hitproof.spec.connector import is_fully_loaded
from hitproof.spec.hits import required_run


@dataclass(frozen=True)
class WrongTable:
    """What is wrong with a block table, what should be there and what is."""

    defect: Defect
    spec: str
    actual: str


def wrong_length(actual: int, expected: int) -> Defect:
    """The defect of a block table of another length."""
    longer = "longer" if actual > expected else "shorter"
    return Defect.of(Code.TABLE_LENGTH_WRONG, table=longer)


def wrong_in_tables(judged: Configuration | Layout, answer: LookupAnswer) -> WrongTable | None:
    """What is wrong with the block tables of an answer, whatever is cached.

    Where a local prefix lacks the state of a Mamba group, that group's table may be shorter.
    """
    owners = {
        group_id: (number, looked_up)
        for number, looked_up in enumerate(judged.looked_up)
        for group_id in looked_up.group_ids
    }
    if len(answer.tables) != len(judged.shared):
        return WrongTable(
            Defect(Code.TABLE_COUNT_WRONG),
            f"{len(judged.shared)} block tables, one for each group",
            f"{len(answer.tables)} block tables",
        )
    for group_id, table in enumerate(answer.tables):
        if group_id not in owners:
            if table is None or len(table) > 0:
                return WrongTable(
                    Defect(Code.TABLE_OF_UNCACHED_GROUP),
                    f"an empty block table for group {group_id}, which opts out of prefix caching",
                    f"{table}",
                )
            continue
        number, looked_up = owners[group_id]
        boundary = answer.hit_length // looked_up.group.block_size
        lags = answer.diverged and is_fully_loaded(looked_up.group.kind)
        if len(table) > boundary or (len(table) < boundary and not lags):
            return WrongTable(
                wrong_length(len(table), boundary),
                f"hit of {answer.hit_length} tokens: block table of group {group_id} of length "
                f"{boundary}",
                f"block table of length {len(table)}",
            )
        run = required_run(looked_up.shape, boundary)
        for position, block in enumerate(table):
            where = f"at position {position} of the block table of group {group_id}"
            if not isinstance(block, SymbolicBlock):
                return WrongTable(
                    Defect(Code.TABLE_ENTRY_NOT_A_BLOCK), f"a block {where}", f"{block!r:.100}"
                )
            in_place = block.question == (number, position) and block.group_id == group_id
            if not in_place and not (block.is_null_block and position not in run):
                return WrongTable(
                    Defect(Code.TABLE_BLOCK_WRONG),
                    f"hit of {answer.hit_length} tokens: cached block {position} {where}",
                    "the null block" if block.is_null_block else "another block",
                )
    return None
