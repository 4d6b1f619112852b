"""What hitproof does not judge: the one list, for documents and for what refuses it.

A limit that can be asked for has a refusal, the words with which the code declines. All refusals
are taken from here, and a test fails on a limit that nothing refuses any more.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limit:
    """One limit.

    Attributes:
        part: what has it: a command, or a part of one.
        sentence: for documents.
        refusal: what is said when it is asked for; "" when nothing can ask for it.
    """

    part: str
    sentence: str
    refusal: str = ""


LIMITS: Mapping[str, Limit] = {
    code: Limit(**row)
    for code, row in tomllib.loads(
        (Path(__file__).parent / "limits.toml").read_text(encoding="utf-8")
    ).items()
}
"""Every limit, by a stable code; a row each of ``limits.toml``."""


def refusal(code: str) -> str:
    """What is said when a limit is asked for. Raises `KeyError` on no limit."""
    return LIMITS[code].refusal
