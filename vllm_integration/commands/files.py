"""``--write FORMAT=FILE``: a result in files, beside what is printed."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from hitproof.vllm_integration.commands.running import fail
from hitproof.vllm_integration.verdict import Verdict


def wanted_files(
    texts: Sequence[str], formats: Collection[str], output: StrEnum
) -> list[tuple[str, Path]]:
    """Each format and file of ``--write``; ends with a usage error where one cannot be."""
    files = []
    for text in texts:
        form, equals, name = text.partition("=")
        if form not in formats or not equals or not name:
            known = ", ".join(formats)
            sentence = f"--write {text} is not FORMAT=FILE; the formats are {known}"
            fail(Verdict.USAGE, sentence, output)
        path = Path(name)
        if path.is_dir() or not path.absolute().parent.is_dir():
            where = "is a directory" if path.is_dir() else "is in a directory that does not exist"
            fail(Verdict.USAGE, f"{name} {where}; name another file with --write", output)
        files.append((form, path))
    return files


def write_files(
    files: Sequence[tuple[str, Path]],
    documents: Mapping[str, Callable[[], str]],
    output: StrEnum,
) -> None:
    """Write the documents; ends with one sentence where a file cannot be written."""
    for form, path in files:
        try:
            path.write_text(documents[form](), encoding="utf-8")
        except OSError as error:
            fail(Verdict.USAGE, f"{path} cannot be written ({error.strerror})", output)
