"""Trees of targets as bytes, which travel to each machine once, and are named by content."""

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

from hitproof.vllm_integration.targets.cache import kept
from hitproof.vllm_integration.targets.unpacking import unpack

_PARTS = ("PKG-INFO", "vllm")


def content_of(root: Path) -> str:
    """A digest of the paths and bytes of a tree, whatever its times and owners are."""
    digest = hashlib.sha256()
    for path in _files(root):
        data = (root / path).read_bytes()
        digest.update(f"{path}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:20]


def pack(root: Path) -> bytes:
    """The tree as an archive."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for path in _files(root):
            archive.add(root / path, path)
    return packed.getvalue()


def unpacked(content: str, packed: Callable[[], bytes]) -> Path:
    """Where this machine has the tree; ``packed`` is asked for it the first time.

    Raises `TargetError` if the cache cannot be used.
    """

    def install(place: Path) -> tuple[Path, dict[str, str]]:
        with tarfile.open(fileobj=io.BytesIO(packed()), mode="r:gz") as archive:
            unpack(archive, place, lambda _: True)
        return place, {"content": content}

    return kept("trees", content, install, lambda _: None)


def _files(root: Path) -> Iterator[str]:
    """The files by path, in order. Links are followed: a copy may consist of them."""
    found = []
    for part in _PARTS:
        if (root / part).is_file():
            found.append(part)
        for place, _, names in os.walk(root / part, followlinks=True):
            inside = Path(place).relative_to(root)
            if inside.name != "__pycache__":
                found += [(inside / name).as_posix() for name in names]
    return iter(sorted(found))
