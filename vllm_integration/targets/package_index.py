"""Releases of vLLM from the package index: fetched, checked by their hash, unpacked, never built.

Imported on the first use of a release only, since a client of the index takes a while to load.
"""

import gzip
import os
import ssl
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any
from zipfile import BadZipFile, ZipFile

import requests
import truststore
from packaging.version import InvalidVersion, Version
from pypi_simple import (
    PYPI_SIMPLE_ENDPOINT,
    DigestMismatchError,
    DistributionPackage,
    NoSuchProjectError,
    PyPISimple,
    UnsupportedRepoVersionError,
)
from requests.adapters import HTTPAdapter

from hitproof.vllm_integration.targets.target import UNPACKED, TargetError
from hitproof.vllm_integration.targets.unpacking import unpack

TIMEOUT = (10.0, 60.0)
"""Seconds to connect, and from one piece of an answer to the next."""

_COMPILED = (".so", ".pyd")
"""Endings of what a wheel has and an sdist has not."""


def fetch(
    version: Version, place: Path, announce: Callable[[str], None]
) -> tuple[Path, dict[str, str]]:
    """Fetch a release and unpack it below ``place``."""
    announce(f"fetching vLLM {version} from the package index")
    archive = place.with_name("archive")
    package = _download(version, archive)
    announce(f"unpacking vLLM {version}")
    origin = {str(package.package_type): package.filename, "sha256": package.digests["sha256"]}
    unpack_archive = _unpack_wheel if package.package_type == "wheel" else _unpack_sdist
    return unpack_archive(version, archive, place), origin


def _download(version: Version, place: Path) -> DistributionPackage:
    """Fetch the archive of a release to ``place`` and check its digest."""
    with requests.Session() as session:
        session.mount("https://", _SystemTrust())
        client = PyPISimple(_index_url(), session=session)
        try:
            package = _find(client, version)
        # Not only RequestException: a missing REQUESTS_CA_BUNDLE is a bare OSError.
        except OSError as error:
            raise _index_error(version, error) from error
        try:
            client.download_package(package, place, timeout=TIMEOUT)
        except requests.RequestException as error:
            raise _index_error(version, error) from error
        except DigestMismatchError as error:
            raise TargetError(
                f"the {package.package_type} of vLLM {version} is damaged: its sha256 is not the "
                "one that the package index gives; run again, and if that does not help, set "
                "HITPROOF_INDEX_URL to another index"
            ) from error
        return package


def _find(client: PyPISimple, version: Version) -> DistributionPackage:
    """The sdist of a release as the package index lists it; without one, a wheel, which is larger.

    All wheels of a release have the same Python files.
    """
    try:
        listed = client.get_project_page("vllm", timeout=TIMEOUT).packages
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
    for kind, ending in (("sdist", ".tar.gz"), ("wheel", ".whl")):
        for package in sorted(of_release, key=lambda each: each.filename):
            if package.package_type == kind and package.filename.endswith(ending):
                if "sha256" not in package.digests:
                    raise TargetError(
                        f"the package index gives no sha256 for the {kind} of vLLM {version}; "
                        "set HITPROOF_INDEX_URL to an index that does, or name a path to a checkout"
                    )
                return package
    raise TargetError(
        f"vLLM {version} has neither an sdist nor a wheel on the package index; "
        "name another release, or a path to a checkout"
    )


def _version_of(package: DistributionPackage) -> Version | None:
    try:
        return Version(package.version or "")
    except InvalidVersion:
        return None


def _unpack_wheel(version: Version, wheel: Path, place: Path) -> Path:
    """Unpack the Python package of a wheel below ``place``, as an sdist would have it."""
    root = place / f"vllm-{version}"
    metadata = f"{root.name}.dist-info/METADATA"
    remedy = "name another release, or a path to a checkout"
    try:
        with ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("vllm/") and not name.endswith(_COMPILED):
                    archive.extract(name, root)
            (root / "PKG-INFO").write_bytes(archive.read(metadata))
    except (BadZipFile, zlib.error, KeyError, EOFError) as error:
        raise TargetError(
            f"the wheel of vLLM {version} cannot be unpacked ({type(error).__name__}); {remedy}"
        ) from error
    if not (root / "vllm" / "__init__.py").is_file():
        raise TargetError(f"the wheel of vLLM {version} lacks the vllm package; {remedy}")
    return root


def _unpack_sdist(version: Version, sdist: Path, place: Path) -> Path:
    """Unpack what the gate needs of an sdist below ``place``; the directory with the package."""

    def needed(name: str) -> bool:
        below_top = PurePosixPath(name).parts[1:]
        return bool(below_top) and below_top[0] in UNPACKED

    remedy = "name another release, or a path to a checkout"
    try:
        with tarfile.open(sdist) as archive:
            unpack(archive, place, needed)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TargetError(
            f"the sdist of vLLM {version} cannot be unpacked ({type(error).__name__}); {remedy}"
        ) from error
    for root in place.iterdir():
        if (root / "vllm" / "__init__.py").is_file():
            return root
    raise TargetError(f"the sdist of vLLM {version} does not contain the vllm package; {remedy}")


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
