"""Commits of a git repository as targets: read with git, never checked out."""

import os
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from hitproof.vllm_integration.targets.unpacking import unpack


class CommitError(Exception):
    """The commit cannot be resolved; the message is one sentence that names the remedy."""


def find_commit(repository: str, ref: str) -> str:
    """The full hash of the commit that ``ref`` names. Raises `CommitError`."""
    if not os.path.isdir(repository):
        raise CommitError(f"{repository} is not a directory; name a git checkout of vLLM")
    try:
        _git(repository, "rev-parse", "--git-dir")
    except subprocess.CalledProcessError as error:
        raise CommitError(
            f"{repository} is not a git checkout, so it has no commit {ref!r}; "
            "name a directory with a git repository"
        ) from error
    try:
        found = _git(
            repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
    except subprocess.CalledProcessError as error:
        raise CommitError(
            f"{repository} has no commit {ref!r}; name a branch, a tag or a commit, or fetch it"
        ) from error
    return found.strip()


def commits_between(repository: str, base: str, head: str, path: str) -> list[tuple[str, str]]:
    """The commits after ``base`` up to ``head`` that change a path, oldest first, with subjects.

    A merge counts as one commit. Raises `CommitError`.
    """
    first, last = find_commit(repository, base), find_commit(repository, head)
    try:
        told = _git(
            repository, "log", "--first-parent", "--reverse", "--format=%H %s", f"{first}..{last}",
            "--", path,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise CommitError(f"git cannot read the log of {repository}; run git fsck there") from error
    return [(each[:40], each[41:]) for each in told.splitlines()]


def tags_before(repository: str, commit: str) -> list[str]:
    """The tags of a commit and its ancestors. Raises `CommitError`."""
    try:
        return _git(repository, "tag", "--merged", commit).split()
    except subprocess.CalledProcessError as error:
        raise CommitError(
            f"git cannot read the tags of {repository}; run git fsck there"
        ) from error


def top_level(directory: str) -> Path | None:
    """The work tree that a directory is in; None if it is in none. Raises `CommitError`."""
    try:
        return Path(_git(directory, "rev-parse", "--show-toplevel").rstrip("\n")).resolve()
    except subprocess.CalledProcessError:
        return None


def is_committed(directory: str, path: str) -> bool | None:
    """Whether a file of a work tree is as its last commit has it; None if git does not track it.

    ``path`` is relative to ``directory``. Raises `CommitError`.
    """
    try:
        _git(directory, "ls-files", "--error-unmatch", "--", path)
    except subprocess.CalledProcessError:
        return None
    try:
        return not _git(directory, "status", "--porcelain", "--", path)
    except subprocess.CalledProcessError as error:
        raise CommitError(f"git cannot read {directory}; run git fsck there") from error


def committed(directory: str, path: str) -> str:
    """The text of a file of a work tree as its last commit has it. Raises `CommitError`."""
    try:
        return _git(directory, "show", f"HEAD:./{path}")
    except subprocess.CalledProcessError as error:
        raise CommitError(f"{path} is not in the last commit of {directory}; commit it") from error


def export(repository: str, commit: str, place: Path, needed: Sequence[str]) -> None:
    """Write the directories ``needed`` as the commit has them below ``place``.

    The work tree and the index of the repository are not touched. Raises `CommitError`.
    """
    command = ["git", "-C", repository, "archive", "--format=tar", commit]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=_environment()
    ) as process:
        assert process.stdout is not None

        def wanted(name: str) -> bool:
            return PurePosixPath(name).parts[:1] in {(part,) for part in needed}

        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                unpack(archive, place, wanted)
        except tarfile.TarError as error:
            raise CommitError(
                f"git cannot read {commit} out of {repository}; run git fsck there"
            ) from error


def _git(repository: str, *arguments: str) -> str:
    try:
        return subprocess.run(
            ["git", "-C", repository, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=_environment(),
        ).stdout
    except FileNotFoundError as error:
        raise CommitError("git is not installed; install it, or name a path without @") from error


def _environment() -> dict[str, str]:
    """Without what would point git at another repository than the one that is named."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
