"""Targets: what the gate judges, and how a release or commit gets into the cache, once."""

import errno
import fcntl
import gzip
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

import requests
import truststore
from packaging.version import InvalidVersion, Version
from platformdirs import user_cache_path
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DigestMismatchError,
    DistributionPackage,
    NoSuchProjectError,
    PyPISimple,
    UnsupportedRepoVersionError,
)
from requests.adapters import HTTPAdapter

from vllm_integration.commits import CommitError, export, find_commit, released_version

INSTALLED = "installed"
"""The target that is the vllm package of the chosen interpreter."""

_TIMEOUT = (10.0, 60.0)  # seconds to connect, and from one piece of an answer to the next
_UNPACKED = ("vllm", "tests", "PKG-INFO")


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
    return _kept("releases", str(version), partial(_fetch, version, announce=announce), announce)


def _commit(text: str, repository: str, ref: str, announce: Callable[[str], None]) -> Target:
    """A commit, unpacked into the cache."""

    def unpack(place: Path) -> tuple[Path, dict[str, str]]:
        announce(f"unpacking commit {commit[:12]} of {repository}")
        export(repository, commit, place, _UNPACKED)
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


def _fetch(
    version: Version, place: Path, announce: Callable[[str], None]
) -> tuple[Path, dict[str, str]]:
    """Fetch a release and unpack it below ``place``."""
    announce(f"fetching vLLM {version} from the package index")
    sdist = place.with_name("sdist.tar.gz")
    package = _download(version, sdist)
    announce(f"unpacking vLLM {version}")
    origin = {"sdist": package.filename, "sha256": package.digests["sha256"]}
    return _unpack(version, sdist, place), origin


def _download(version: Version, place: Path) -> DistributionPackage:
    """Fetch the sdist of a release to ``place`` and check its digest."""
    with requests.Session() as session:
        session.mount("https://", _SystemTrust())
        client = PyPISimple(_index_url(), session=session)
        try:
            package = _find_sdist(client, version)
        # Not only RequestException: a missing REQUESTS_CA_BUNDLE is a bare OSError.
        except OSError as error:
            raise _index_error(version, error) from error
        try:
            client.download_package(package, place, timeout=_TIMEOUT)
        except requests.RequestException as error:
            raise _index_error(version, error) from error
        except DigestMismatchError as error:
            raise TargetError(
                f"the sdist of vLLM {version} is damaged: its sha256 is not the one that the "
                "package index gives; run again, and if that does not help, set "
                "HITPROOF_INDEX_URL to another index"
            ) from error
        return package


def _find_sdist(client: PyPISimple, version: Version) -> DistributionPackage:
    """The sdist of a release as the package index lists it."""
    try:
        listed = client.get_project_page("vllm", timeout=_TIMEOUT).packages
    except NoSuchProjectError:
        listed = []
    except requests.RequestException:
        raise
    except (ValueError, UnsupportedRepoVersionError) as error:
        raise TargetError(
            "the package index answered with something other than a list of files "
            f"({type(error).__name__}); set HITPROOF_INDEX_URL to an index's simple API"
        ) from error
    packages = [(found, package) for package in listed if (found := _version_of(package))]
    if not packages:
        raise TargetError(
            f"vLLM {version} is not on the package index, nor is any other release; "
            "set HITPROOF_INDEX_URL to an index that has vLLM, or name a path to a checkout"
        )
    of_release = [package for found, package in packages if found == version]
    if not of_release:
        newest = max((not found.is_prerelease, found) for found, _ in packages)[1]
        raise TargetError(
            f"vLLM {version} is not on the package index (newest release there: {newest}); "
            "name a release that is there, or a path to a checkout"
        )
    for package in of_release:
        if package.package_type == "sdist" and package.filename.endswith(".tar.gz"):
            if "sha256" not in package.digests:
                raise TargetError(
                    f"the package index gives no sha256 for the sdist of vLLM {version}; "
                    "set HITPROOF_INDEX_URL to an index that does, or name a path to a checkout"
                )
            return package
    raise TargetError(
        f"vLLM {version} has no sdist on the package index; "
        "name another release, or a path to a checkout"
    )


def _version_of(package: DistributionPackage) -> Version | None:
    try:
        return Version(package.version or "")
    except InvalidVersion:
        return None


def _unpack(version: Version, sdist: Path, place: Path) -> Path:
    """Unpack what the gate needs of an sdist below ``place``; the directory with the package."""

    def needed(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo | None:
        safe = tarfile.data_filter(member, destination)
        below_top = PurePosixPath(safe.name).parts[1:]
        return safe if below_top and below_top[0] in _UNPACKED else None

    mend = "name another release, or a path to a checkout"
    try:
        with tarfile.open(sdist) as archive:
            archive.extractall(place, filter=needed)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TargetError(
            f"the sdist of vLLM {version} cannot be unpacked ({type(error).__name__}); {mend}"
        ) from error
    for root in place.iterdir():
        if (root / "vllm" / "__init__.py").is_file():
            return root
    raise TargetError(f"the sdist of vLLM {version} does not contain the vllm package; {mend}")


class _SystemTrust(HTTPAdapter):
    """HTTPS that trusts the system's certificates besides those that requests brings."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        super().init_poolmanager(*args, **kwargs, ssl_context=context)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        context = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return super().proxy_manager_for(*args, **kwargs, ssl_context=context)


def _index_url() -> str:
    """The package index: ours, or else the one that pip uses, or else the library's default."""
    for variable in ("HITPROOF_INDEX_URL", "PIP_INDEX_URL"):
        if url := os.environ.get(variable):
            return url
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):  # no pip, or nothing configured
        return PYPI_SIMPLE_ENDPOINT
    return asked.stdout.strip() or PYPI_SIMPLE_ENDPOINT


def _index_error(version: Version, error: OSError) -> TargetError:
    """The sentence for what went wrong between us and the package index.

    It leaves out the URL, which may carry a password.
    """
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return TargetError(
            f"the package index refused to give vLLM {version} (HTTP status "
            f"{error.response.status_code}); set HITPROOF_INDEX_URL to an index that has it, "
            "or name a path to a checkout"
        )
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return TargetError(
            f"the download of vLLM {version} broke off; run again, or name a path to a checkout"
        )
    unreached = (requests.ConnectionError, requests.Timeout)
    if isinstance(error, requests.RequestException) and not isinstance(error, unreached):
        return TargetError(
            f"the package index cannot be used ({type(error).__name__}); "
            "set HITPROOF_INDEX_URL to the URL of an index's simple API"
        )
    return TargetError(
        f"the package index could not be reached to fetch vLLM {version} ({_reason(error)}); "
        "connect, or name a path to a checkout"
    )


def _reason(error: BaseException) -> str:
    """The root cause in a few words; the outer layers of requests repeat URLs and objects."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
