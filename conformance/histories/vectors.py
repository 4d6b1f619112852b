"""The frozen vectors: histories with the hits that the spec promises at each lookup."""

from importlib.resources import files
from importlib.resources.abc import Traversable

from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import History


def vectors() -> dict[str, History]:
    """The histories in ``conformance/vectors``, by the name of their file."""
    return _in(files("hitproof.conformance") / "vectors")


def engine_vectors() -> dict[str, History]:
    """What a real engine of vLLM asked of its manager; see ``conformance/vectors/README.md``."""
    return _in(files("hitproof.conformance") / "vectors" / "engine")


def _in(place: Traversable) -> dict[str, History]:
    found = sorted(place.iterdir(), key=lambda path: path.name)
    return {
        path.name.removesuffix(".json"): read(path.read_bytes(), path.name)
        for path in found
        if path.name.endswith(".json")
    }
