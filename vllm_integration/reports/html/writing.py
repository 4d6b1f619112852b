"""Writing a page where it belongs, all of it or nothing."""

import os
import tempfile
from pathlib import Path

PAGE = "index.html"


def prepare(directory: Path) -> None:
    """Make the directory, and see that a page can be written there. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory):
        pass
    if (directory / PAGE).is_dir():
        raise IsADirectoryError(21, "its index.html is a directory")


def write(directory: Path, page: str) -> None:
    """Write the page beside the old one, then in its place. Raises OSError."""
    descriptor, scratch = tempfile.mkstemp(dir=directory, prefix=f".{PAGE}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(page)
        Path(scratch).chmod(0o666 & ~_umask())
        Path(scratch).replace(directory / PAGE)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
