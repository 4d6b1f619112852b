"""Trees that fixes are applied to: a copy of the release, or the user's own."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hitproof.vllm_integration.fixes.patches import RELEASE, Fix, FixError
from hitproof.vllm_integration.targets.cache import cache_directory
from hitproof.vllm_integration.targets.commits import committed, is_committed
from hitproof.vllm_integration.targets.target import UNPACKED, Target


def copied(source: Path, place: Path) -> None:
    """Copy what is judged of the tree ``source`` to ``place``. Raises `FixError`."""
    if place.exists() or not place.absolute().parent.is_dir():
        why = "is there already" if place.exists() else "is in a directory that does not exist"
        raise FixError(f"{place} {why}; name a new directory with --to")
    place.mkdir()
    for name in UNPACKED:
        if (source / name).is_dir():
            left_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source / name, place / name, symlinks=True, ignore=left_out)
        elif (source / name).is_file():
            shutil.copy(source / name, place / name)


def linked(source: Path, place: Path, paths: Collection[str]) -> None:
    """Make ``place`` a tree like ``source`` with copies of the files ``paths``.

    Everything else is linked: a directory without any of them is one link.
    """
    place.mkdir()
    for each in source.iterdir():
        within = [path.partition("/")[2] for path in paths if path.startswith(f"{each.name}/")]
        if each.name in paths:
            shutil.copy(each, place / each.name)
        elif within:
            linked(each, place / each.name, within)
        else:
            (place / each.name).symlink_to(each)


def clean_texts(tree: Target, release: Path, fixes: Sequence[Fix]) -> dict[str, str]:
    """The files that the fixes change as they are without changes that only this tree has.

    ``release`` is the root of the release itself. Raises `FixError` where the tree is another
    release, and `CommitError`.
    """
    assert tree.root is not None
    if tree.version != RELEASE:
        other = f"release {tree.version}" if tree.version else "a release that cannot be told"
        raise FixError(
            f"{tree.name} descends from {other}, and the fixes are for {RELEASE}; name a tree of "
            f"{RELEASE}, or say with --release that it is one"
        )
    if tree.root.resolve().is_relative_to(cache_directory().resolve()):
        raise FixError(f"{tree.name} is in hitproof's cache; apply the fixes to a copy with --to")
    found = {}
    for path in dict.fromkeys(path for fix in fixes for path in fix.paths):
        known = is_committed(str(tree.root), path)
        if known is None:  # git does not know it
            found[path] = _read(release / path)
        else:
            found[path] = _read(tree.root / path) if known else committed(str(tree.root), path)
    return found


def _read(path: Path) -> str:
    return path.read_bytes().decode(errors="surrogateescape") if path.is_file() else ""


def apply(root: Path, fixes: Sequence[Fix], clean: Mapping[str, str] | None = None) -> None:
    """Apply all fixes to the tree at ``root``, or else none. Raises `FixError`.

    ``clean`` are the texts that its files must have, or have with the fixes, as an earlier run
    leaves some of them that was killed; by default whatever they have. Each file is replaced at
    once, after all patches have been applied to copies.
    """
    paths = dict.fromkeys(path for fix in fixes for path in fix.paths)
    with tempfile.TemporaryDirectory(prefix="hitproof-fixes-") as place:
        copies = Path(place)
        for path in paths:
            if (root / path).resolve() != root.resolve() / path:
                raise FixError(f"{root / path} is a link; apply the fixes to a copy with --to")
            if (root / path).is_file():
                (copies / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / path, copies / path)
                if clean is not None:
                    text = clean[path].encode(errors="surrogateescape")
                    (copies / path).write_bytes(text)
        _patch(copies, fixes, root)
        changed = [path for path in paths if _read(root / path) != _read(copies / path)]
        for path in changed if clean is not None else ():
            if _read(root / path) != (clean or {})[path]:
                raise FixError(
                    f"{root / path} has changes that are not committed; commit them, or apply the "
                    "fixes to a copy with --to"
                )
        for path in changed:
            beside = root / f"{path}.hitproof"
            try:
                shutil.copy(copies / path, beside)
                beside.replace(root / path)
            except OSError as error:
                beside.unlink(missing_ok=True)
                raise FixError(
                    f"the fixes cannot be written to {root} ({error.strerror}); make it writable, "
                    "and apply them again"
                ) from error


def _patch(copies: Path, fixes: Sequence[Fix], root: Path) -> None:
    """Apply all patches to copies of the files of ``root``."""
    for number, fix in enumerate(fixes, 1):
        before = "".join(each.patch for each in fixes[:number])
        refused = _git_apply(copies, before, "--check")
        if refused and not _git_apply(copies, fix.patch, "--check", "--reverse"):
            raise FixError(f"{root} has fix {fix.number} already; leave {fix.number} out")
        if refused:
            raise FixError(
                f"fix {fix.number} does not apply to {root} ({refused}); name a tree whose code is "
                f"that of {RELEASE} there"
            )
    refused = _git_apply(copies, "".join(each.patch for each in fixes))
    assert not refused, refused


def _git_apply(root: Path, patch: str, *options: str) -> str:
    """Why git does not apply a patch, in a line; empty where it does."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    # A tree inside of some repository is none of that repository's business.
    alone = {"GIT_CEILING_DIRECTORIES": str(root.resolve().parent), "LC_ALL": "C"}
    try:
        ended = subprocess.run(
            ["git", "apply", "-C1", "--whitespace=nowarn", *options, "-"],
            input=patch,
            cwd=root,
            env=kept | alone,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise FixError("git is not installed; install it, it applies the patches") from None
    if ended.returncode == 0:
        return ""
    first, *_ = [*ended.stderr.splitlines(), "git apply failed"]
    return first.removeprefix("error: ")
