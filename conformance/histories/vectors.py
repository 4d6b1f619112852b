"""The frozen vectors: histories with the hits that the spec promises at each lookup."""

from importlib.resources import files

from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import History


def vectors() -> dict[str, History]:
    """The histories in ``conformance/vectors``, by the name of their file."""
    found = sorted(
        (path for path in (files("hitproof.conformance") / "vectors").iterdir()),
        key=lambda path: path.name,
    )
    return {
        path.name.removesuffix(".json"): read(path.read_bytes(), path.name)
        for path in found
        if path.name.endswith(".json")
    }
