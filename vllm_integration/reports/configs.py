"""What `hitproof configs` prints."""

from typing import Any

from rich.console import Console

from hitproof.conformance.picking import picked
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.coverage import PROPERTIES, missing, pairs
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, layouts, of_tiers
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.reports.printing import print_text


def configs_json(profile: Profile) -> dict[str, Any]:
    """What a profile covers, as JSON."""
    return {
        "profile": str(profile),
        "coverage": {
            "properties": {name: list(values) for name, values in PROPERTIES.items()},
            "pairs": len(list(pairs())),
            "missing": [dict(pair) for pair in missing(profile)],
        },
        "models": [
            {
                **picked(model, "name", "origin", "hash_block_size"),
                "judged": [_judged(each) for each in _every(profile) if _is_of(each, model.name)],
            }
            for model in MODELS
        ],
        "groups": [_judged(each) for each in configurations(profile) if not each.model],
        "layouts": [_judged(each) for each in _several(profile) if not each.model],
    }


def print_configs(profile: Profile, console: Console) -> None:
    """What a profile covers, a line each."""
    every = len(list(pairs()))
    print_text(
        console,
        "configs.txt",
        one_group=list(configurations(profile)),
        several=_several(profile),
        models=MODELS,
        is_of=_is_of,
        every=every,
        lacking=len(missing(profile)),
        properties=PROPERTIES,
    )


def _every(profile: Profile) -> list[Configuration | Layout]:
    return [*configurations(profile), *_several(profile)]


def _several(profile: Profile) -> list[Layout]:
    return [*layouts(profile), *of_tiers(profile)]


def _judged(judged: Configuration | Layout) -> dict[str, Any]:
    return {"description": judged.describe(), **judged.as_json()}


def _is_of(judged: Configuration | Layout, model: str) -> bool:
    """Whether it is the model's, with EAGLE or without, cut or not."""
    return judged.model == model or judged.model.startswith(f"{model} ")
