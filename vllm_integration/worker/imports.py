"""What is read while modules are imported, so that the gate can tell whether it has changed."""

import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader, SourcelessFileLoader
from importlib.util import source_from_cache
from os.path import basename, dirname
from typing import Any

_READS = (
    (SourceFileLoader, "get_data"),
    (SourcelessFileLoader, "get_data"),
    (ExtensionFileLoader, "create_module"),
)
"""The methods by which import reads a file."""


class Imports:
    """The files that import reads from now on, and the directories in which it looks for modules.

    Modules whose import fails count, too. There should be one of it in a process.
    """

    def __init__(self) -> None:
        self._files: dict[str, None] = {}
        self._reported = 0, 0
        for loader, name in _READS:
            setattr(loader, name, _noted(getattr(loader, name), self._files))

    def news(self) -> dict[str, Any]:
        """``imported`` with the files since the last time and all directories, or nothing new."""
        now = len(self._files), len(sys.path_importer_cache)
        if now == self._reported:
            return {}
        new = list(self._files)[self._reported[0] :]
        self._reported = now
        directories = list(sys.path_importer_cache)
        return {"imported": {"files": new, "directories": directories}}


def _noted(read: Callable[..., Any], files: dict[str, None]) -> Callable[..., Any]:
    def reading(loader: Any, *arguments: Any) -> Any:
        for path in (loader.path, *arguments):
            if isinstance(path, str):
                files[_source_of(path)] = None
        return read(loader, *arguments)

    return reading


def _source_of(path: str) -> str:
    """The source of cached bytecode, or the file itself."""
    if basename(dirname(path)) != "__pycache__":
        return path
    try:
        return source_from_cache(path)
    except ValueError:
        return path
