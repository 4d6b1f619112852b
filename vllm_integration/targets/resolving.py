"""Targets: what the gate judges, and how a release or commit gets into the cache, once."""

import os
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path

from packaging.version import Version

from hitproof.vllm_integration.targets.cache import kept
from hitproof.vllm_integration.targets.commits import (
    CommitError,
    export,
    find_commit,
    released_version,
)
from hitproof.vllm_integration.targets.target import INSTALLED, UNPACKED, Target, TargetError


def _silent(_: str) -> None:
    """Announce nothing."""


def resolve(text: str, *, announce: Callable[[str], None] = _silent) -> Target:
    """The target that ``text`` names: a release number, a checkout, or ``installed``.

    A path is what contains a path separator or exists as a directory; ``path@ref`` is the commit
    that ref names in the git repository there, whose work tree stays as it is. A release or
    commit is unpacked into the cache on first use, never built, and needs no network after that;
    the cache is ``HITPROOF_CACHE``, or else ``hitproof`` in the user's cache directory.
    ``announce`` gets short sentences on the progress.

    Raises `TargetError` when the target cannot be resolved.
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


def _checkout(path: str, text: str) -> Path:
    """The directory at ``path``, if it contains the vllm package; the user wrote ``text``."""
    remedy = "name the directory that contains the vllm package, or a release such as 0.33.0"
    root = Path(os.path.abspath(path))
    if not os.path.isdir(root):
        raise TargetError(f"{text} is not a directory; {remedy}")
    for part in ("vllm/v1/core", "vllm/__init__.py"):
        if not os.path.exists(root / part):
            raise TargetError(f"{text} is not a vLLM checkout: it has no {part}; {remedy}")
    return root


def stated_version(root: Path) -> str | None:
    """The version that PKG-INFO states; an unpacked release has one."""
    try:
        stated = HeaderParser().parsestr((root / "PKG-INFO").read_text("utf-8"))["Version"]
        return None if stated is None else str(Version(stated))
    except (OSError, ValueError):
        return None


def _release(version: Version, announce: Callable[[str], None]) -> Path:
    """The unpacked archive of a release, from the cache or else from the package index."""

    def unpack(place: Path) -> tuple[Path, dict[str, str]]:
        from hitproof.vllm_integration.targets.package_index import (
            fetch,  # only where there is something to fetch
        )

        return fetch(version, place, announce)

    return kept("releases", str(version), unpack, announce)


def _commit(text: str, repository: str, ref: str, announce: Callable[[str], None]) -> Target:
    """A commit, unpacked into the cache."""

    def unpack(place: Path) -> tuple[Path, dict[str, str]]:
        announce(f"unpacking commit {commit[:12]} of {repository}")
        export(repository, commit, place, UNPACKED)
        return place, {"commit": commit}

    try:
        commit = find_commit(repository, ref)
        root = kept("commits", commit, unpack, announce)
        version = released_version(repository, commit)
    except CommitError as error:
        raise TargetError(str(error)) from error
    _checkout(str(root), text)
    return Target(text, root, version)
