"""Archives that want to write elsewhere, with what Python has against them and without."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from hitproof.vllm_integration.targets.unpacking import unpack


@pytest.fixture(params=["the filter of tarfile", "our own"], autouse=True)
def filtering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "our own":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    elif not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python's tarfile has no filters")


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> bytes:
    """An archive of a good file, then this one."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for info in (tarfile.TarInfo("top/good"), tarfile.TarInfo(name)):
            info.size = 1
            if info.name == name:
                info.type, info.linkname, info.mode = kind, link, mode
                info.size = int(kind == tarfile.REGTYPE)
            archive.addfile(info, io.BytesIO(b"x"))
    return buffer.getvalue()


def unpacked(text: bytes, place: Path) -> set[str]:
    place.mkdir()
    with tarfile.open(fileobj=io.BytesIO(text), mode="r|") as archive:
        unpack(archive, place, lambda name: name.startswith("top/"))
    return {path.name for path in (place / "top").iterdir()}


@pytest.mark.parametrize(
    "text",
    [
        member("top/../../evil"),
        member("../evil"),
        member("top/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("top/link", tarfile.SYMTYPE, "../../evil"),
        member("top/link", tarfile.LNKTYPE, "../evil"),
        member("top/device", tarfile.CHRTYPE),
        member("top/pipe", tarfile.FIFOTYPE),
    ],
)
def test_what_leads_outside_is_refused(text: bytes, tmp_path: Path) -> None:
    with pytest.raises(tarfile.TarError):
        unpacked(text, tmp_path / "place")
    assert {path.name for path in tmp_path.iterdir()} == {"place"}


def test_a_link_that_stays_inside_is_kept(tmp_path: Path) -> None:
    text = member("top/link", tarfile.SYMTYPE, "good")
    assert unpacked(text, tmp_path / "place") == {"good", "link"}


def test_an_absolute_name_becomes_relative(tmp_path: Path) -> None:
    assert unpacked(member("/top/file"), tmp_path / "place") == {"good", "file"}


def test_what_is_not_needed_is_left_out(tmp_path: Path) -> None:
    assert unpacked(member("other/file"), tmp_path / "place") == {"good"}
    assert not (tmp_path / "place/other").exists()


def test_nobody_else_may_write_and_nothing_runs_as_its_owner(tmp_path: Path) -> None:
    assert unpacked(member("top/file", mode=0o6777), tmp_path / "place") == {"good", "file"}
    assert os.stat(tmp_path / "place/top/file").st_mode & 0o7022 == 0
