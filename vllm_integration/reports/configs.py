"""What `hitproof configs` prints."""

from typing import Any

from rich.console import Console
from rich.markup import escape

from hitproof.conformance.picking import picked
from hitproof.conformance.scope.configurations import Configuration
from hitproof.conformance.scope.coverage import PROPERTIES, missing, pairs
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.layouts import Layout, layouts, of_tiers
from hitproof.conformance.scope.models import MODELS
from hitproof.conformance.scope.profiles import Profile
from hitproof.conformance.words import count


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
    one_group, several = configurations(profile), _several(profile)
    _print_list("one group", [each for each in one_group if not each.model], console)
    _print_list("layouts", [each for each in several if not each.model], console)
    for model in MODELS:
        console.print(f"[bold]{escape(model.name)}[/]: {escape(model.origin)}")
        for each in _every(profile):
            if _is_of(each, model.name):
                console.print(f"  {_line(each)}", markup=False)
    every, lacking = list(pairs()), missing(profile)
    console.print(
        f"{count(one_group, 'configuration')} of one group, {count(several, 'layout')}; "
        f"{len(every) - len(lacking)} of {len(every)} possible pairs of properties "
        f"({', '.join(PROPERTIES)}) are covered"
    )


def _every(profile: Profile) -> list[Configuration | Layout]:
    return [*configurations(profile), *_several(profile)]


def _several(profile: Profile) -> list[Layout]:
    return [*layouts(profile), *of_tiers(profile)]


def _print_list(title: str, judged: list[Any], console: Console) -> None:
    console.print(f"[bold]{title}[/]")
    for each in judged:
        console.print(f"  {_line(each)}", markup=False)


def _line(judged: Configuration | Layout) -> str:
    return f"{judged.describe()}, hash blocks of {judged.hash_block_size}, {judged.bound_in_words}"


def _judged(judged: Configuration | Layout) -> dict[str, Any]:
    return {"description": judged.describe(), **judged.as_json()}


def _is_of(judged: Configuration | Layout, model: str) -> bool:
    """Whether it is the model's, with EAGLE or without, cut or not."""
    return judged.model == model or judged.model.startswith(f"{model} ")
