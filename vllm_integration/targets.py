"""Targets: what the gate judges, and how a release or commit gets into the cache, once."""

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, TypeAlias

from packaging.version import Version
from platformdirs import user_cache_path

from vllm_integration.commits import CommitError, export, find_commit, released_version

INSTALLED = "installed"
"""The target that is the vllm package of the chosen interpreter."""

UNPACKED = ("vllm", "tests", "PKG-INFO")
"""What is kept of a release or commit."""


class TargetError(Exception):
    """The target cannot be had; the message is one sentence that names the mend."""


@dataclass(frozen=True)
class Target:
    """What the gate judges.

    Attributes:
        name: as the user wrote it.
        root: the directory to put first on ``sys.path``, absolute; None for ``installed``.
        version: the release number; for a path the one in its PKG-INFO, if any; else None
            (unknown: take it for newer than any release).
        managers: classes that are built instead of vLLM's managers, each as ``module:Class``.
        coordinators: classes that are built instead of vLLM's coordinators.
    """

    name: str
    root: Path | None
    version: str | None
    managers: tuple[str, ...] = ()
    coordinators: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name, and what is built instead of vLLM's own classes."""
        classes = (*self.managers, *self.coordinators)
        return f"{self.name} with {', '.join(classes)}" if classes else self.name

    def as_json(self) -> dict[str, Any]:
        """As reports show it."""
        return {
            "name": self.name,
            "version": self.version,
            "managers": list(self.managers),
            "coordinators": list(self.coordinators),
        }

    def has(self, text: str) -> bool:
        """Whether the module of a ``module:Class`` is in the target's own tree."""
        path = Path(*text.partition(":")[0].split("."))
        return self.root is not None and any(
            (self.root / file).is_file() for file in (f"{path}.py", path / "__init__.py")
        )


def _silent(_: str) -> None:
    """Announce nothing."""


def resolve(text: str, *, announce: Callable[[str], None] = _silent) -> Target:
    """The target that ``text`` names: a release number, a checkout, or ``installed``.

    A path is what contains a path separator or exists as a directory; ``path@ref`` is the commit
    that ref names in the git repository there, whose work tree stays as it is. A release or
    commit is unpacked into the cache on first use, never built, and needs no network after that;
    the cache is ``HITPROOF_CACHE``, or else ``hitproof`` in the user's cache directory.
    ``announce`` gets short sentences on the progress.

    Raises `TargetError` when the target cannot be had.
    """
    if text == INSTALLED:
        return Target(text, root=None, version=None)
    repository, at, ref = text.rpartition("@")
    if at and not os.path.isdir(text):
        return _commit(text, repository or ".", ref, announce)
    if os.sep in text or os.path.isdir(text):
        root = _checkout(text, text)
        return Target(text, root, stated_version(root))
    try:
        version = Version(text)
    except ValueError:
        raise TargetError(
            f"{text!r} is no target; name a release such as 0.33.0, the path to a vLLM checkout, "
            f"path@ref for a commit of one, or {INSTALLED!r}"
        ) from None
    return Target(text, _release(version, announce), str(version))


def cache_directory() -> Path:
    """Where hitproof keeps what it fetched: ``HITPROOF_CACHE``, or in the user's cache home."""
    chosen = os.environ.get("HITPROOF_CACHE")
    return Path(os.path.abspath(chosen)) if chosen else user_cache_path("hitproof")


def _checkout(path: str, text: str) -> Path:
    """The directory at ``path``, if it contains the vllm package; the user wrote ``text``."""
    mend = "name the directory that contains the vllm package, or a release such as 0.33.0"
    root = Path(os.path.abspath(path))
    if not os.path.isdir(root):
        raise TargetError(f"{text} is not a directory; {mend}")
    for part in ("vllm/v1/core", "vllm/__init__.py"):
        if not os.path.exists(root / part):
            raise TargetError(f"{text} is not a vLLM checkout: it has no {part}; {mend}")
    return root


def stated_version(root: Path) -> str | None:
    """The version that PKG-INFO states; only an sdist has one."""
    try:
        stated = HeaderParser().parsestr((root / "PKG-INFO").read_text("utf-8"))["Version"]
        return None if stated is None else str(Version(stated))
    except (OSError, ValueError):
        return None


def _release(version: Version, announce: Callable[[str], None]) -> Path:
    """The unpacked sdist of a release, from the cache or else from the package index."""

    def unpack(place: Path) -> tuple[Path, dict[str, str]]:
        from vllm_integration.package_index import fetch  # only where there is something to fetch

        return fetch(version, place, announce)

    return _kept("releases", str(version), unpack, announce)


def _commit(text: str, repository: str, ref: str, announce: Callable[[str], None]) -> Target:
    """A commit, unpacked into the cache."""

    def unpack(place: Path) -> tuple[Path, dict[str, str]]:
        announce(f"unpacking commit {commit[:12]} of {repository}")
        export(repository, commit, place, UNPACKED)
        return place, {"commit": commit}

    try:
        commit = find_commit(repository, ref)
        root = _kept("commits", commit, unpack, announce)
        version = released_version(repository, commit)
    except CommitError as error:
        raise TargetError(str(error)) from error
    _checkout(str(root), text)
    return Target(text, root, version)


_Install: TypeAlias = Callable[[Path], tuple[Path, dict[str, str]]]
"""Unpacks below a directory; which directory has the package, and where it is from."""


def _kept(kind: str, name: str, install: _Install, announce: Callable[[str], None]) -> Path:
    """The directory of that name in the cache, which is installed on first use."""
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
        mend = "set HITPROOF_CACHE to another directory"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TargetError(
                f"the disk is full under the cache {cache}; free space there, or {mend}"
            ) from error
        raise TargetError(
            f"the cache {cache} cannot be used ({error.strerror or error}); "
            f"make it writable, or {mend}"
        ) from error
    return place


@contextmanager
def _locked(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock at ``path``. It ends with its process, so a killed run blocks nobody."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("waiting for another run that is fetching a release")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(install: _Install, place: Path, marker: Path) -> None:
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
