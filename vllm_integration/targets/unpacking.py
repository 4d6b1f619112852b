"""Unpacking archives that are not trusted: nothing is written outside the place they go to."""

import os
import tarfile
from collections.abc import Callable
from pathlib import Path


def unpack(archive: tarfile.TarFile, place: Path, needed: Callable[[str], bool]) -> None:
    """Extract the members below ``place`` whose names are ``needed``.

    Raises `tarfile.TarError` for a member that is no file, directory or link, or that would end
    up, or points, outside of ``place``.
    """
    if hasattr(tarfile, "data_filter"):

        def wanted(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
            safe = tarfile.data_filter(member, destination)
            return safe if needed(safe.name) else None

        archive.extractall(place, filter=wanted)
        return
    for member in archive:  # Python 3.11.3 and older, Debian 12's among them
        safe = data_filter(member, place)
        if needed(safe.name):
            archive.extract(safe, place)


def data_filter(member: tarfile.TarInfo, place: Path) -> tarfile.TarInfo:
    """What `tarfile.data_filter` does, where that does not exist (PEP 706).

    Returns the member with a relative name, and with the permissions and owner of a file that is
    made here. Raises `tarfile.ExtractError` as said in `unpack`.
    """
    root = os.path.realpath(place)
    member.name = member.name.lstrip("/" + os.sep)
    if os.path.isabs(member.name):
        raise tarfile.ExtractError(f"{member.name!r} is an absolute path")
    _require_inside(root, member.name, member.name)
    if not (member.isfile() or member.isdir() or member.islnk() or member.issym()):
        raise tarfile.ExtractError(f"{member.name!r} is a special file")
    if member.islnk() or member.issym():
        if os.path.isabs(member.linkname):
            raise tarfile.ExtractError(f"{member.name!r} links to an absolute path")
        start = os.path.dirname(member.name) if member.issym() else ""
        _require_inside(root, os.path.join(start, member.linkname), member.name)
    executable = member.mode & 0o100
    member.mode = 0o755 if member.isdir() or executable else 0o644
    member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
    return member


def _require_inside(root: str, path: str, name: str) -> None:
    if os.path.commonpath([root, os.path.realpath(os.path.join(root, path))]) != root:
        raise tarfile.ExtractError(f"{name!r} is outside of where it is unpacked")
