"""From which release a tree descends, and what says so.

A tree is compared with that release: its ledger entries, footprints and policies. PKG-INFO is what
an unpacked release has. In a git repository the newest tag among the ancestors decides; vLLM tags
main with candidates only, so a candidate counts as its release. ``vllm/_version.py`` is written
when a checkout is built, by setuptools-scm, which counts on from the last release. Where none of
them says it, it is the release that the judged files have the most in common with. What is stated
counts even where another release is nearer: it does not change from commit to commit.
"""

import re
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from hitproof.vllm_integration.targets.commits import CommitError, tags_before, top_level
from hitproof.vllm_integration.targets.content import compared_with, content_of, known, nearest

_WRITTEN = re.compile(r"""^(?:__version__ = )?version = (['"])(?P<version>.+?)\1""", re.MULTILINE)


class Descent(NamedTuple):
    """The release that a tree descends from.

    Attributes:
        release: its number; None where nothing says it.
        source: what says so, as a phrase.
    """

    release: str | None
    source: str


UNKNOWN = Descent(None, "")


def number(version: Version) -> str:
    """The release of a version as it is written here, with three numbers: 0.33 is 0.33.0."""
    release = (*version.release, 0, 0)[: max(3, len(version.release))]
    return ".".join(map(str, release))


def stated_version(root: Path) -> str | None:
    """The version that PKG-INFO states; an unpacked release has one."""
    try:
        stated = HeaderParser().parsestr((root / "PKG-INFO").read_text("utf-8"))["Version"]
        return None if stated is None else number(Version(stated))
    except (OSError, ValueError):
        return None


def by_content(
    root: Path, stated: Descent, announce: Callable[[str], None] = lambda _: None
) -> Descent:
    """What is ``stated`` of the tree, beside what its judged files say.

    ``announce`` gets what they say, or that they do not, where nothing is stated.
    """
    content = content_of(root)
    near = nearest(content)
    if stated.release is None:
        if near is not None:
            announce(f"{root}: {near.describe()}")
            return Descent(near.release, f"the content of its files ({near.describe()})")
        oldest, *_, newest = known()
        announce(
            f"{root} has nothing in common with the releases {oldest} to {newest} in the files "
            "that are judged, so it counts as newer than any; name its release with --release"
        )
        return stated
    its = compared_with(content, stated.release)
    if near is None or its is None or its.units <= near.units:
        return stated
    return stated._replace(
        source=f"{stated.source}; its files are nearer to another one ({near.describe()}, and "
        f"{its.different} from {stated.release}), which --release {near.release} names"
    )


def of_tree(root: Path) -> Descent:
    """The release that the tree at ``root`` descends from."""
    stated = stated_version(root)
    if stated is not None:
        return Descent(stated, "PKG-INFO")
    try:
        if top_level(str(root)) == root.resolve():
            found = of_commit(str(root), "HEAD")
            if found is not UNKNOWN:
                return found
    except CommitError:
        pass
    return _written(root)


def of_commit(repository: str, commit: str) -> Descent:
    """The release that a commit descends from, by the tags of its ancestors; `CommitError`."""
    newest = newest_tag(repository, commit)
    if newest is None:
        return UNKNOWN
    return Descent(number(Version(newest)), f"the git tag {newest} among its ancestors")


def newest_tag(repository: str, commit: str) -> str | None:
    """The newest release among the tags of a commit and its ancestors; `CommitError`."""
    tags: dict[Version, str] = {}
    for tag in tags_before(repository, commit):
        try:
            tags[Version(tag)] = tag
        except InvalidVersion:
            continue
    return tags[max(tags)] if tags else None


def _written(root: Path) -> Descent:
    try:
        found = _WRITTEN.search((root / "vllm/_version.py").read_text("utf-8"))
        version = None if found is None else Version(found["version"])
    except (OSError, ValueError):
        return UNKNOWN
    if version is None or (version.is_devrelease and version.pre is None and not version.micro):
        return UNKNOWN  # on the way to a release that cannot be told from the number
    release = number(version)
    if version.is_devrelease and version.pre is None:
        *first, micro = version.release[:3]
        release = ".".join(map(str, (*first, micro - 1)))
    return Descent(release, f"vllm/_version.py, which says {version}")
