"""Targets: what the gate judges, and how a release or commit gets into the cache, once."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packaging.version import Version

from hitproof.vllm_integration.targets.cache import found, kept
from hitproof.vllm_integration.targets.commits import CommitError, export, find_commit
from hitproof.vllm_integration.targets.content import known
from hitproof.vllm_integration.targets.descent import (
    Descent,
    by_content,
    newest_tag,
    number,
    of_commit,
    of_tree,
)
from hitproof.vllm_integration.targets.target import INSTALLED, UNPACKED, Target, TargetError

OLDEST = Version("0.14.0")
"""The oldest release that hitproof is tested with."""


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
        return _descending(text, root, of_tree(root), announce)
    try:
        version = Version(text)
    except ValueError:
        raise TargetError(
            f"{text!r} is not a target; name a release such as 0.33.0, the path to a vLLM "
            f"checkout, path@ref for a commit of one, or {INSTALLED!r}"
        ) from None
    _is_tested(number(version), announce)
    name = number(version) if version == Version(number(version)) else str(version)
    return Target(text, _release(Version(name), announce), name)


def tree_before(target: Target, announce: Callable[[str], None] = _silent) -> Path | None:
    """The tree of the release that a checkout or commit descends from, for what it changes.

    It is in the cache, or a tag of its repository. None where it would have to be fetched, or
    where the target is a release itself.
    """
    if target.root is None or target.version is None or not target.inferred:
        return None
    release = found("releases", target.version)
    if release is not None:
        return release
    path, at, ref = target.name.rpartition("@")
    repository, commit = (path or ".", ref) if at else (target.name, "HEAD")
    try:
        tag = newest_tag(repository, commit)
        if tag is None or number(Version(tag)) != target.version:
            return None
        return _commit(f"{repository}@{tag}", repository, tag, announce).root
    except (CommitError, TargetError):
        return None


def held_as(target: Target, release: str | None) -> Target:
    """The target, compared with a release that the user names. Raises `TargetError`."""
    if release is None:
        return target
    try:
        version = number(Version(release))
    except ValueError:
        raise TargetError(f"{release!r} is not a release; write one such as 0.33.0") from None
    *_, newest = releases = known()
    unknown = "" if version in releases else f", which is not on record; {newest} is the newest"
    return replace(target, version=version, inferred=f"--release{unknown}")


def _descending(text: str, root: Path, descent: Descent, announce: Callable[[str], None]) -> Target:
    descent = by_content(root, descent, announce)
    if descent.release is not None:
        _is_tested(descent.release, announce)
    return Target(text, root, descent.release, inferred=descent.source)


def _is_tested(release: str, announce: Callable[[str], None]) -> None:
    if Version(release) < OLDEST:
        announce(
            f"{release} is older than {OLDEST}, the oldest release that hitproof was tested with: "
            "claims that it cannot check are inconclusive"
        )


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
        descent = of_commit(repository, commit)
    except CommitError as error:
        raise TargetError(str(error)) from error
    _checkout(str(root), text)
    return _descending(text, root, descent if descent.release else of_tree(root), announce)
