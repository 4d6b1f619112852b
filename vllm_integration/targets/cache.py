"""The cache: directories that are unpacked once, complete or not there."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from platformdirs import user_cache_path

from hitproof.vllm_integration.targets.target import TargetError

Install: TypeAlias = Callable[[Path], tuple[Path, dict[str, str]]]
"""Unpacks below a directory; which directory has the package, and where it is from."""


def cache_directory() -> Path:
    """Where hitproof keeps what it fetched: ``HITPROOF_CACHE``, or in the user's cache home."""
    chosen = os.environ.get("HITPROOF_CACHE")
    return Path(os.path.abspath(chosen)) if chosen else user_cache_path("hitproof")


def kept(kind: str, name: str, install: Install, announce: Callable[[str], None]) -> Path:
    """The directory of that name in the cache, which is installed on first use.

    Raises `TargetError` when the cache cannot be used.
    """
    cache = cache_directory()
    shelf = cache / kind
    place = shelf / name
    # Written last, so its presence says that the directory is complete.
    marker = shelf / f"{name}.json"
    try:
        if not (marker.is_file() and place.is_dir()):
            shelf.mkdir(parents=True, exist_ok=True)
            with _locked(shelf / ".lock", announce):
                if not (marker.is_file() and place.is_dir()):
                    _install(install, place, marker)
    except OSError as error:
        remedy = "set HITPROOF_CACHE to another directory"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TargetError(
                f"the disk is full under the cache {cache}; free space there, or {remedy}"
            ) from error
        raise TargetError(
            f"the cache {cache} cannot be used ({error.strerror or error}); "
            f"make it writable, or {remedy}"
        ) from error
    return place


def found(kind: str, name: str) -> Path | None:
    """The directory of that name, if the cache has it."""
    shelf = cache_directory() / kind
    return shelf / name if (shelf / f"{name}.json").is_file() else None


@contextmanager
def _locked(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock at ``path``. It ends with its process, so a killed run blocks no other."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("waiting for another run that is fetching a release")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(install: Install, place: Path, marker: Path) -> None:
    """Install beside the place, then move it there. Needs the lock."""
    # What a killed run left behind.
    scratch = place.with_name(".partial")
    for remnant in (scratch, place):
        if remnant.exists():
            shutil.rmtree(remnant)
    (scratch / "unpacked").mkdir(parents=True)
    try:
        unpacked, origin = install(scratch / "unpacked")
        note = scratch / "marker.json"
        note.write_text(json.dumps(origin) + "\n")
        unpacked.rename(place)
        note.rename(marker)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
