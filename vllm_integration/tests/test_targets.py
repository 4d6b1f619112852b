"""Targets: every way to name one, and every way not to get it. All but one test run offline."""

import errno
import gzip
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pypi_simple import PYPI_SIMPLE_ENDPOINT

import hitproof
from hitproof.vllm_integration.targets import package_index
from hitproof.vllm_integration.targets.resolving import resolve
from hitproof.vllm_integration.targets.target import Target, TargetError

SOURCE = Path(hitproof.__file__).parents[1]
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
MANAGER = "vllm/v1/core/single_type_kv_cache_manager.py"
MEMBERS = {
    "PKG-INFO": "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2.3\n",
    "setup.py": "raise SystemExit('never built')\n",
    "csrc/cache.cu": "",
    "vllm/__init__.py": "",
    MANAGER: "# the manager\n",
    "tests/v1/core/test_prefix_caching.py": "# a test\n",
}


def an_sdist(members: dict[str, str] | None = None, top: str = "vllm-1.2.3") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (MEMBERS if members is None else members).items():
            info = tarfile.TarInfo(f"{top}/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def a_wheel(without: str = "") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in {
            "vllm/__init__.py": "",
            MANAGER: MEMBERS[MANAGER],
            "vllm/_C.abi3.so": "compiled",
            "vllm-1.2.2.data/scripts/vllm": "",
            "vllm-1.2.2.dist-info/METADATA": "Metadata-Version: 2.4\nName: vllm\nVersion: 1.2.2\n",
            "../evil": "",
            "vllm/../../evil": "",
        }.items():
            if name != without:
                archive.writestr(name, text)
    return buffer.getvalue()


class Index:
    """A package index with one project; a test changes what it serves."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.files: dict[str, bytes] = {}
        self.digests: dict[str, str] = {}
        self.page: tuple[int, str, str] | None = None  # served instead: status, type, text
        self.file_status = 200
        self.cut_off = 0
        self.delay = 0.0
        self.fetched: list[str] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.fetched.append(self.path)
                if self.path == "/simple/vllm/":
                    status, content_type, text = index.page or index.list_files()
                    self.answer(status, content_type, text.encode())
                else:
                    time.sleep(index.delay)
                    data = index.files[self.path.removeprefix("/files/")]
                    self.answer(index.file_status, "application/gzip", data, index.cut_off)

            def answer(self, status: int, kind: str, data: bytes, cut_off: int = 0) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) - cut_off])

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def add(self, name: str, data: bytes, digest: str | None = None) -> None:
        self.files[name] = data
        self.digests[name] = hashlib.sha256(data).hexdigest() if digest is None else digest

    def list_files(self) -> tuple[int, str, str]:
        if self.kind == "html":
            fragments = {n: f"#sha256={d}" if d else "" for n, d in self.digests.items()}
            links = [f'<a href="/files/{n}{f}">{n}</a>' for n, f in fragments.items()]
            return 200, "text/html", f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"
        files = [
            {"filename": n, "url": f"/files/{n}", "hashes": {"sha256": d} if d else {}}
            for n, d in self.digests.items()
        ]
        page = {"meta": {"api-version": "1.0"}, "name": "vllm", "files": files}
        return 200, JSON_TYPE, json.dumps(page)

    def downloads(self) -> list[str]:
        return [path for path in self.fetched if path.startswith("/files/")]


@pytest.fixture(params=["html", "json"])
def index(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    index = Index(request.param)
    index.add("vllm-1.2.3.tar.gz", an_sdist())
    index.add("vllm-1.2.3-py3-none-any.whl", b"")
    index.add("vllm-1.2.2-py3-none-any.whl", a_wheel())
    index.add("vllm-1.2.1.zip", b"")
    index.add("vllm-1.3.0rc1.tar.gz", an_sdist())
    monkeypatch.setenv("HITPROOF_INDEX_URL", index.url)
    thread = threading.Thread(target=index.server.serve_forever, args=(0.01,))
    thread.start()
    yield index
    index.server.shutdown()
    index.server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path | None:
    if request.node.get_closest_marker("release"):  # real releases share the user's own cache
        return None
    monkeypatch.setenv("HITPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path / "cache"


def only_html(test: Any) -> Any:
    """For tests to which the form of the index page makes no difference."""
    return pytest.mark.parametrize("index", ["html"], indirect=True)(test)


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def left_in(cache: Path) -> set[str]:
    return {path.name for path in (cache / "releases").iterdir()} - {".lock"}


def refusal(text: str = "1.2.3") -> str:
    with pytest.raises(TargetError) as caught:
        resolve(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


# Names


def test_installed_has_no_root() -> None:
    assert resolve("installed") == Target("installed", root=None, version=None)


@pytest.mark.parametrize("text", ["foo", "", "0.33.x", "installed2", "0.33.0 0.32.0", "9" * 5000])
def test_neither_release_nor_path(text: str, cache: Path) -> None:
    message = refusal(text)
    if text.isdigit():
        assert "too long" in message or "is not a target" in message
    else:
        assert message == (
            f"{text!r} is not a target; name a release such as 0.33.0, the path to a vLLM "
            "checkout, path@ref for a commit of one, or 'installed'"
        )
    assert not cache.exists()


def a_checkout(root: Path, *names: str) -> Path:
    for name in names or ("vllm/__init__.py", MANAGER):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(MEMBERS[name])
    return root


def test_a_checkout_has_no_known_version(tmp_path: Path) -> None:
    root = a_checkout(tmp_path / "vllm")
    assert resolve(str(root)) == Target(str(root), root=root, version=None)


def test_an_unpacked_sdist_states_its_version(tmp_path: Path) -> None:
    root = a_checkout(tmp_path, *MEMBERS)
    assert resolve(str(root)).version == "1.2.3"


@pytest.mark.parametrize("text", ["Name: vllm\n", "Version: main\n", "\xff"])
def test_a_useless_pkg_info_is_ignored(text: str, tmp_path: Path) -> None:
    root = a_checkout(tmp_path)
    (root / "PKG-INFO").write_bytes(text.encode("latin-1"))
    assert resolve(str(root)).version is None


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_checkout(tmp_path / "checkout")
    monkeypatch.chdir(root)
    assert resolve(".") == Target(".", root=root, version=None)
    monkeypatch.chdir(tmp_path)
    assert resolve("checkout") == Target("checkout", root=root, version=None)


def test_a_directory_wins_over_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = a_checkout(tmp_path / "1.2.3")
    monkeypatch.chdir(tmp_path)
    assert resolve("1.2.3").root == root


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["PKG-INFO"], "vllm/v1/core"),
        (["vllm/__init__.py"], "vllm/v1/core"),
        ([MANAGER], "vllm/__init__.py"),
    ],
)
def test_not_a_checkout(names: list[str], missing: str, tmp_path: Path) -> None:
    root = a_checkout(tmp_path / "x", *names)
    assert refusal(str(root)) == (
        f"{root} is not a vLLM checkout: it has no {missing}; name the directory that contains "
        "the vllm package, or a release such as 0.33.0"
    )


def test_no_such_directory() -> None:
    assert refusal("no/such").startswith("no/such is not a directory; name the directory")


# Releases


def test_a_release_is_fetched_once_and_never_built(index: Index, cache: Path) -> None:
    said: list[str] = []
    target = resolve("1.2.3", announce=said.append)
    release = cache / "releases" / "1.2.3"
    assert target == Target("1.2.3", root=release, version="1.2.3")
    assert files_below(release) == set(MEMBERS) - {"setup.py", "csrc/cache.cu"}
    assert (release / MANAGER).read_text() == MEMBERS[MANAGER]
    assert said == ["fetching vLLM 1.2.3 from the package index", "unpacking vLLM 1.2.3"]
    assert left_in(cache) == {"1.2.3", "1.2.3.json"}
    assert json.loads((cache / "releases" / "1.2.3.json").read_text()) == {
        "sdist": "vllm-1.2.3.tar.gz",
        "sha256": index.digests["vllm-1.2.3.tar.gz"],
    }

    index.fetched.clear()
    assert resolve("1.2.3", announce=said.append) == target
    assert index.fetched == []
    assert len(said) == 2


@pytest.mark.usefixtures("index")
def test_a_cached_release_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    target = resolve("1.2.3")
    monkeypatch.setenv("HITPROOF_INDEX_URL", closed_port())
    assert resolve("1.2.3") == target


def test_other_spellings_share_one_copy(index: Index) -> None:
    target = resolve("v1.2.3")
    assert target.version == "1.2.3"
    assert resolve("1.2.3").root == target.root
    assert len(index.downloads()) == 1


@pytest.mark.usefixtures("index")
@only_html
def test_a_release_candidate_is_a_release() -> None:
    assert resolve("1.3.0rc1").version == "1.3.0rc1"


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux keeps its cache where XDG_CACHE_HOME says")
    monkeypatch.delenv("HITPROOF_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    release = a_checkout(tmp_path / "hitproof" / "releases" / "1.2.3")
    release.with_name("1.2.3.json").write_text("{}")
    assert resolve("1.2.3").root == release


# Releases that cannot be had


OTHER = "; name another release, or a path to a checkout"
NO_INDEX = ("the package index ", "set HITPROOF_INDEX_URL to ")
NOT_THERE = (
    "vLLM 1.2.3 is not on the package index, nor is any other release; set HITPROOF_INDEX_URL to "
    "an index that has vLLM, or name a path to a checkout"
)


def not_deflated_past_the_middle() -> bytes:
    long = MEMBERS | {"vllm/long.py": "#" * 1_000_000}  # to fail after the first read
    deflate = zlib.compressobj(wbits=31)
    half = deflate.compress(gzip.decompress(an_sdist(long))[:500_000])
    return half + deflate.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 100


def a_member_named(name: str) -> bytes:
    return an_sdist(MEMBERS | {name: "evil"})


def page(status: int, kind: str, text: str) -> Callable[[Index], object]:
    return lambda index: setattr(index, "page", (status, kind, text))


def sdist(data: bytes) -> Callable[[Index], object]:
    return lambda index: index.add("vllm-1.2.3.tar.gz", data)


def wheel(data: bytes) -> Callable[[Index], object]:
    return lambda index: index.add("vllm-1.2.2-py3-none-any.whl", data)


def digest(text: str) -> Callable[[Index], object]:
    return lambda index: index.digests.update({"vllm-1.2.3.tar.gz": text})


def packed(tar: bytes, more: bytes = b"") -> Callable[[Index], object]:
    return sdist(gzip.compress(tar) + more)


TAR = gzip.decompress(an_sdist())
REFUSED: dict[str, tuple[str, Callable[[Index], object], tuple[str, ...]]] = {
    "no such release": (
        "9.9.9",
        lambda _: None,
        ("vLLM 9.9.9 is not on the package index (newest release there: 1.2.3); name a release ",),
    ),
    "no archive": (
        "1.2.1",
        lambda _: None,
        (f"vLLM 1.2.1 has neither an sdist nor a wheel on the package index{OTHER}",),
    ),
    "no vLLM": ("1.2.3", page(404, "text/html", ""), (NOT_THERE,)),
    "a login": ("1.2.3", page(200, "text/html", "Please log in"), (NOT_THERE,)),
    "no index": ("1.2.3", page(200, "text/plain", "hello"), NO_INDEX),
    "no page": ("1.2.3", page(200, JSON_TYPE, '{"meta": 3}'), NO_INDEX),
    "another version": (
        "1.2.3",
        page(200, JSON_TYPE, '{"meta": {"api-version": "9.0"}, "name": "vllm", "files": []}'),
        NO_INDEX,
    ),
    "no JSON": ("1.2.3", page(200, JSON_TYPE, "not JSON"), NO_INDEX),
    "refuses": ("1.2.3", page(503, "text/html", ""), ("the package index", "HTTP status 503")),
    "refuses the file": (
        "1.2.3",
        lambda index: setattr(index, "file_status", 403),
        ("the package index refused to give vLLM 1.2.3 (HTTP status 403); set HITPROOF_INDEX",),
    ),
    "no digest": (
        "1.2.3",
        digest(""),
        ("the package index gives no sha256 for the sdist of vLLM 1.2.3; ",),
    ),
    "wrong digest": (
        "1.2.3",
        digest("0" * 64),
        ("the sdist of vLLM 1.2.3 is damaged: its sha256 is not the one ",),
    ),
    "broken off": (
        "1.2.3",
        lambda index: setattr(index, "cut_off", 10),
        ("the download of vLLM 1.2.3 broke off; run again, or name a path to a checkout",),
    ),
    "no package": (
        "1.2.3",
        sdist(an_sdist({"PKG-INFO": ""})),
        ("the sdist of vLLM 1.2.3 does not contain the vllm package; ",),
    ),
    **{
        reason: ("1.2.2", wheel(data), (f"the wheel of vLLM 1.2.2 {reason}{OTHER}",))
        for data, reason in (
            (b"", "cannot be unpacked (BadZipFile)"),
            (a_wheel("vllm-1.2.2.dist-info/METADATA"), "cannot be unpacked (KeyError)"),
            (a_wheel("vllm/__init__.py"), "lacks the vllm package"),
        )
    },
    **{
        name: ("1.2.3", change, (f"the sdist of vLLM 1.2.3 cannot be unpacked ({error}){OTHER}",))
        for name, change, error in (
            ("traversal", sdist(a_member_named("vllm/../../../evil")), "OutsideDestinationError"),
            ("traversal beside", sdist(a_member_named("../../evil")), "OutsideDestinationError"),
            ("no gzip", sdist(b"no archive"), "ReadError"),
            ("no tar", packed(b"no archive"), "ReadError"),
            ("cut", sdist(an_sdist()[:-200]), "EOFError"),
            ("noise", packed(TAR[:4096], b"and noise"), "BadGzipFile"),
            ("cut tar", packed(TAR[:4000]), "ReadError"),
            ("not deflated", sdist(not_deflated_past_the_middle()), "error"),
        )
    },
}
"""A release, what is wrong with the index, and what is said."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_release_that_cannot_be_had(name: str, index: Index, cache: Path) -> None:
    release, spoil, said = REFUSED[name]
    spoil(index)
    message = refusal(release)
    assert message.startswith(said[0])
    assert all(each in message for each in said)
    assert not (cache / "releases").exists() or left_in(cache) == set()
    assert list(cache.parent.rglob("evil")) == []
    assert name != "no digest" or index.downloads() == []


def test_release_with_a_wheel_only(index: Index, cache: Path) -> None:
    target = resolve("1.2.2")
    assert target.version == "1.2.2"
    assert target.root is not None
    assert (target.root / MANAGER).read_text() == MEMBERS[MANAGER]
    assert not list(target.root.rglob("*.so"))
    assert list(cache.parent.rglob("evil")) in ([], [target.root / "vllm" / "evil"])
    assert resolve(str(target.root)).version == "1.2.2"
    assert index.downloads() == ["/files/vllm-1.2.2-py3-none-any.whl"]
    marker = json.loads((cache / "releases" / "1.2.2.json").read_text())
    assert marker["wheel"] == "vllm-1.2.2-py3-none-any.whl"


def closed_port() -> str:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://user:password@127.0.0.1:{unused.getsockname()[1]}/simple"


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITPROOF_INDEX_URL", closed_port())
    assert refusal("0.33.0") == (
        "the package index could not be reached to fetch vLLM 0.33.0 (Connection refused); "
        "connect, or name a path to a checkout"
    )
    assert left_in(cache) == set()


def test_an_index_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_index, "TIMEOUT", (0.2, 0.2))
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        monkeypatch.setenv("HITPROOF_INDEX_URL", f"http://127.0.0.1:{hanging.getsockname()[1]}/")
        assert "could not be reached to fetch vLLM 1.2.3 (timed out)" in refusal()


@only_html
def test_no_certificates(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITPROOF_INDEX_URL", index.url.replace("http:", "https:"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "no/such/bundle")
    assert "could not be reached to fetch vLLM 1.2.3 (Could not find a suitable TLS" in refusal()


@pytest.mark.parametrize("url", ["foo", "ftp://127.0.0.1/simple", "http://"])
def test_a_bad_index_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HITPROOF_INDEX_URL", url)
    assert refusal().startswith("the package index cannot be used (")


@pytest.mark.usefixtures("index")
@only_html
def test_an_unusable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    monkeypatch.setenv("HITPROOF_CACHE", str(cache))
    assert refusal() == (
        f"the cache {cache} cannot be used (Not a directory); make it writable, or set "
        "HITPROOF_CACHE to another directory"
    )


@pytest.mark.usefixtures("index")
@only_html
def test_a_full_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extractall", full)
    assert refusal() == (
        f"the disk is full under the cache {cache}; free space there, or set HITPROOF_CACHE to "
        "another directory"
    )
    assert left_in(cache) == set()


# Interrupted and parallel runs

KILLED_WHILE_UNPACKING = f"""
import os, signal, tarfile
from hitproof.vllm_integration.targets.resolving import resolve

data_filter = tarfile.data_filter
def killed(member, destination):
    if member.name.endswith({MANAGER!r}):
        os.kill(os.getpid(), signal.SIGKILL)
    return data_filter(member, destination)

tarfile.data_filter = killed
resolve("1.2.3")
"""
RESOLVED = """
from hitproof.vllm_integration.targets.resolving import resolve
print(resolve("1.2.3").root)
"""


def python(code: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path])}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.usefixtures("index")
@only_html
def test_a_killed_unpack_does_not_pass_as_complete(cache: Path) -> None:
    with python(KILLED_WHILE_UNPACKING) as killed:
        assert killed.wait() == -signal.SIGKILL
    assert left_in(cache) == {".partial"}
    assert files_below(cache / "releases" / ".partial" / "unpacked")

    release = resolve("1.2.3").root
    assert release is not None
    assert (release / MANAGER).is_file()
    assert left_in(cache) == {"1.2.3", "1.2.3.json"}


@pytest.mark.usefixtures("index")
@only_html
def test_an_interrupt_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(tarfile, "data_filter", interrupted)
        with pytest.raises(KeyboardInterrupt):
            resolve("1.2.3")
    assert left_in(cache) == set()
    assert resolve("1.2.3").root


@pytest.mark.usefixtures("index")
@only_html
def test_a_release_without_marker_is_fetched_anew(cache: Path) -> None:
    half = a_checkout(cache / "releases" / "1.2.3", "vllm/__init__.py")
    assert resolve("1.2.3").root == half
    assert (half / MANAGER).is_file()


@only_html
def test_processes_in_parallel_fetch_once(index: Index, cache: Path) -> None:
    index.delay = 1.0
    runs = [python(RESOLVED) for _ in range(3)]
    roots = {run.communicate()[0].strip() for run in runs}
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert roots == {str(cache / "releases" / "1.2.3")}
    assert len(index.downloads()) == 1


@only_html
def test_threads_in_parallel_fetch_once(index: Index) -> None:
    index.delay = 0.3
    said: list[str] = []
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: resolve(text, announce=said.append), ["1.2.3"] * 4))
    assert len(set(found)) == 1
    assert len(index.downloads()) == 1
    assert said.count("waiting for another run that is fetching a release") == 3


# Which index, and the real one


def test_the_index_is_ours_or_pips_or_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "pip/pip.conf"
    config.parent.mkdir()
    monkeypatch.delenv("PIP_CONFIG_FILE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HITPROOF_INDEX_URL", "http://ours.invalid")
    monkeypatch.setenv("PIP_INDEX_URL", "http://pips.invalid")
    assert package_index._index_url() == "http://ours.invalid"
    monkeypatch.setenv("HITPROOF_INDEX_URL", "")
    assert package_index._index_url() == "http://pips.invalid"
    monkeypatch.delenv("PIP_INDEX_URL")
    config.write_text("[global]\nindex-url = http://configured.invalid\n")
    assert package_index._index_url() == "http://configured.invalid"
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    assert package_index._index_url() == PYPI_SIMPLE_ENDPOINT


def test_https_trusts_the_system_also_through_a_proxy() -> None:
    adapter = package_index._SystemTrust()
    proxy = adapter.proxy_manager_for("http://proxy.invalid")
    for manager in (adapter.poolmanager, proxy):
        context = manager.connection_pool_kw["ssl_context"]
        assert type(context).__module__.startswith("truststore")


@pytest.mark.release
def test_a_real_release() -> None:
    target = resolve("0.33.0")
    assert target.version == "0.33.0"
    assert target.root is not None
    assert (target.root / MANAGER).is_file()
    assert resolve(str(target.root)).version == "0.33.0"
