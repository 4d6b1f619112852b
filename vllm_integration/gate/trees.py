"""What a target's process has read, with a digest each: whether it would read the same again."""

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.machinery import all_suffixes
from pathlib import Path

from hitproof.vllm_integration.sandbox.driver import Imported

_READ_WHOLE = 1 << 22
"""Files of the tree of up to this many bytes count by their content, larger ones by size and time
of change."""
_SUFFIXES = tuple(all_suffixes())
_ABOUT_PACKAGES = (".dist-info", ".egg-info", ".egg-link", ".pth")
_NOT_THERE = "-"


class Changed(Exception):
    """What was read has changed since, so that nobody knows what was read."""


class Digests:
    """Digests of what is read below ``root`` and elsewhere; each file is looked at once.

    Attributes:
        root: the target's tree; None where it is installed, like everything else.
    """

    def __init__(self, root: Path | None) -> None:
        self.root = root
        self._of = cache(self._digest)

    def tree(self, imported: Imported) -> dict[str, str]:
        """What was read of the tree, by paths relative to it."""
        return {self._short(path): self._of(path) for path in self._paths(imported, True)}

    def surroundings(self, imported: Imported) -> dict[str, str]:
        """What was read elsewhere."""
        return {path: self._of(path) for path in self._paths(imported, False)}

    def are(self, before: Mapping[str, str]) -> bool:
        """Whether what was read then is the same now."""
        return all(self._of(self._long(path)) == digest for path, digest in before.items())

    def imported(self, *before: Mapping[str, str]) -> Imported:
        """What was read then."""
        paths = [self._long(path) for each in before for path in each]
        files = {path for path in paths if not path.endswith(os.sep)}
        return Imported(files, {path for path in paths if path.endswith(os.sep)})

    def check_unchanged(self, imported: Imported, since: float) -> None:
        """Raise `Changed` where something that was read is not older than ``since``.

        That is in seconds since 1970.
        """
        for inside in (True, False):
            for path in self._paths(imported, inside):
                for each in _importable(path) if path.endswith(os.sep) else (path,):
                    try:
                        changed = os.stat(each)
                    except OSError:
                        raise Changed from None
                    if not os.path.isdir(each) and changed.st_ctime >= since:
                        raise Changed

    def _paths(self, imported: Imported, inside: bool) -> list[str]:
        files = set(map(os.path.abspath, imported.files))
        for each in map(os.path.abspath, imported.directories):
            files.add(each if os.path.isfile(each) else os.path.join(each, ""))  # archives
        return sorted(path for path in files if self._is_inside(path) is inside)

    def _is_inside(self, path: str) -> bool:
        return self.root is not None and path.startswith(f"{self.root}{os.sep}")

    def _short(self, path: str) -> str:
        return os.path.join(".", path.removeprefix(f"{self.root}{os.sep}"))

    def _long(self, path: str) -> str:
        return path if os.path.isabs(path) else f"{self.root}{os.sep}{path.removeprefix('./')}"

    def _digest(self, path: str) -> str:
        if path.endswith(os.sep):
            return self._listing(path)
        return _content(path) if self._is_inside(path) else _age(path)

    def _listing(self, directory: str) -> str:
        """What import finds there.

        Of a package of the tree also the content of its data; elsewhere the ages of modules, since
        some are read before anybody notes it.
        """
        inside = self._is_inside(directory)
        found = {
            os.path.basename(path): "" if inside or os.path.isdir(path) else _age(path)
            for path in _importable(directory)
        }
        if inside and directory != f"{self.root}{os.sep}":
            found |= {os.path.basename(path): _content(path) for path in _data(directory)}
        return _hash(json.dumps(found, sort_keys=True).encode())


def _data(directory: str) -> list[str]:
    """The files that are no Python source."""
    try:
        with os.scandir(directory) as entries:
            files = [each for each in entries if not each.name.endswith((".py", ".pyc"))]
            return [each.path for each in files if each.is_file()]
    except OSError:
        return []


def _importable(directory: str) -> list[str]:
    """What of a directory can have a part in imports.

    A directory without any module is no package that somebody means.
    """
    try:
        with os.scandir(directory) as entries:
            return [each.path for each in entries if _has_part(each)]
    except OSError:
        return []


def _has_part(entry: "os.DirEntry[str]") -> bool:
    if entry.name.endswith((*_SUFFIXES, *_ABOUT_PACKAGES)):
        return True
    if not entry.name.isidentifier() or entry.name == "__pycache__" or not entry.is_dir():
        return False
    try:
        with os.scandir(entry.path) as entries:
            return any(each.name.endswith(_SUFFIXES) or each.is_dir() for each in entries)
    except OSError:
        return False


def _content(path: str) -> str:
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size <= _READ_WHOLE:
                return _hash(file.read())
    except OSError:
        return _NOT_THERE
    return _age(path)


def _age(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return _NOT_THERE
    return f"{found.st_size} {found.st_mtime_ns}"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]
