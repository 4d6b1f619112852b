"""The explorer's choices: what can be typed in, and what it is once it is read.

Choices are text, by name; the names of a group's end with its number.
"""

from typing import Any

from hitproof.conformance.explain.explanation import ExplanationError
from hitproof.conformance.scope.layouts import Layout, hash_unit
from hitproof.spec.groups import ConfigurationError, Group, GroupKind, alignment, whole_blocks

Choices = dict[str, str]

START: Choices = {
    "groups": "2",
    "kind 0": "full_attention",
    "block size 0": "64",
    "kind 1": "sliding_window",
    "block size 1": "16",
    "window 1": "100",
    "EAGLE": "on",
    "prompt": "576",
}
"""What is shown first: the worked example."""

_ENGINE: dict[str, str] = {
    "groups": "1",
    "prompt": "64",
    "EAGLE": "off",
    "MTP modules": "1",
    "retention": "dense",
    "horizon": "hashed",
    "hit": "",
}
"""The choices about the engine and the request, with what holds where nothing is said."""
_GROUP: dict[str, str] = {
    "kind": "full_attention",
    "block size": "16",
    "window": "",
    "chunk": "",
    "draft layers": "no",
    "prefix caching": "on",
    "cached": "registered",
    "mask": "",
}
"""The choices about each group, likewise; the number of the group follows the name."""

_LISTED: dict[str, list[str]] = {
    "EAGLE": ["off", "on"],
    "horizon": ["hashed", "capped"],
    "kind": [str(kind) for kind in GroupKind],
    "draft layers": ["no", "yes"],
    "prefix caching": ["on", "off"],
}
_HINTS: dict[str, str] = {
    "prompt": "tokens",
    "MTP modules": "that look ahead",
    "retention": "dense, latest, or every N tokens",
    "horizon": "how far a lookup may peek",
    "hit": "tokens; empty for the longest",
    "block size": "tokens",
    "window": "tokens",
    "chunk": "tokens",
    "cached": "registered, mask, none, or blocks: 0-8, 10",
    "mask": "what a producer registered, to be judged: blocks, or none",
}

MOST_GROUPS, MOST_TOKENS, MOST_BLOCKS = 8, 2**14, 1024
"""The most that the page shows: groups, tokens of a prompt, blocks of a group."""


def controls(choices: Choices) -> list[dict[str, Any]]:
    """What can be chosen, and what is: a label, the options if it is one of few, and a hint."""
    found = [_control(name, name, choices) for name in _ENGINE if _matters(name, name, choices)]
    try:
        count = _groups_of(choices)
    except ConfigurationError:
        count = 1
    for number in range(count):
        for name in _GROUP:
            if _matters(name, f"{name} {number}", choices):
                found.append(_control(name, f"{name} {number}", choices))
    return found


_ONLY_WITH: dict[str, tuple[str, str]] = {
    "MTP modules": ("EAGLE", "on"),
    "draft layers": ("EAGLE", "on"),
    "window": ("kind", "sliding_window"),
    "chunk": ("kind", "chunked_local"),
}
"""Choices that mean something with another choice only."""


def _matters(label: str, name: str, choices: Choices) -> bool:
    """Whether a choice means something, or was made all the same."""
    default = _ENGINE.get(label, _GROUP.get(label, ""))
    if label not in _ONLY_WITH or _chosen(choices, name) != default:
        return True
    other, wanted = _ONLY_WITH[label]
    number = name.replace(label, "") if other in _GROUP else ""
    return _chosen(choices, f"{other}{number}") == wanted


def _control(label: str, name: str, choices: Choices) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "value": _chosen(choices, name),
        "options": _LISTED.get(label),
        "hint": _HINTS.get(label, ""),
    }


# --- what was chosen


def _chosen(choices: Choices, name: str) -> str:
    default = _ENGINE[name] if name in _ENGINE else _GROUP[_without_number(name)]
    if "kind 0" not in choices:
        default = START.get(name, default)
    return choices.get(name, default).strip()


def _without_number(name: str) -> str:
    return " ".join(name.split(" ")[:-1])


def _groups_of(choices: Choices) -> int:
    count = _number(choices, "groups")
    if not 1 <= count <= MOST_GROUPS:
        raise ExplanationError(f"there can be 1 to {MOST_GROUPS} groups here, not {count}")
    return count


def _is_number(text: str) -> bool:
    return 0 < len(text) <= 9 and all(each in "0123456789" for each in text)


def _number(choices: Choices, name: str) -> int:
    text = _chosen(choices, name)
    if not _is_number(text):
        raise ExplanationError(f"{name} is a number in digits, not '{text}'")
    return int(text)


def optional(choices: Choices, name: str) -> int | None:
    """A number that may be left out. Raises `ExplanationError`."""
    return _number(choices, name) if _chosen(choices, name) else None


def one_of(choices: Choices, label: str, name: str) -> str:
    """One of a few options. Raises `ExplanationError`."""
    text = _chosen(choices, name)
    if text not in _LISTED[label]:
        raise ExplanationError(f"{name} is one of {', '.join(_LISTED[label])}, not '{text}'")
    return text


def _check_names(choices: Choices, count: int) -> None:
    known = set(_ENGINE)
    for number in range(count):
        known.update(f"{name} {number}" for name in _GROUP)
    for name in choices:
        if name not in known:
            raise ExplanationError(f"there is no choice '{name}' here; leave it out")


def _group(choices: Choices, number: int, modules: int) -> Group:
    return Group(
        kind=GroupKind(one_of(choices, "kind", f"kind {number}")),
        block_size=_number(choices, f"block size {number}"),
        window=optional(choices, f"window {number}"),
        eagle=one_of(choices, "draft layers", f"draft layers {number}") == "yes",
        chunk=optional(choices, f"chunk {number}"),
        prefix_cacheable=one_of(choices, "prefix caching", f"prefix caching {number}") == "on",
        prefill_lookahead=modules,
    )


def layout_of(choices: Choices) -> Layout:
    """The groups and the prompt. Raises `ConfigurationError` on what no engine can have."""
    count, tokens = _groups_of(choices), _number(choices, "prompt")
    _check_names(choices, count)
    if not 1 <= tokens <= MOST_TOKENS:
        raise ExplanationError(
            f"the prompt can have 1 to {MOST_TOKENS} tokens here, not {tokens}; "
            "`hitproof explain` takes longer ones"
        )
    modules = _number(choices, "MTP modules")
    groups = tuple(_group(choices, number, modules) for number in range(count))
    taking_part = [group for group in groups if group.prefix_cacheable]
    for number in range(1, len(taking_part) + 1):
        common = alignment(taking_part[:number])
        if common > MOST_TOKENS:
            raise ExplanationError(
                f"hits of these groups end on multiples of {common} tokens, which is more than "
                f"the page shows ({MOST_TOKENS}); choose block sizes that divide each other"
            )
    alignment(groups)
    eagle = one_of(choices, "EAGLE", "EAGLE") == "on"
    layout = Layout(groups, tokens, eagle, hash_unit(groups))
    for group in taking_part:
        blocks = whole_blocks(tokens, group.block_size)
        if blocks > MOST_BLOCKS:
            raise ExplanationError(
                f"the prompt fills {blocks} blocks of {group.block_size} tokens, and the page "
                f"shows {MOST_BLOCKS} at most; choose a shorter prompt or larger blocks"
            )
    return layout


def interval_of(choices: Choices) -> int | None:
    """The retention interval in tokens; None for dense retention, 0 for the latest boundary."""
    text = _chosen(choices, "retention")
    if text == "dense":
        return None
    if text == "latest":
        return 0
    if not _is_number(text):
        raise ExplanationError(
            f"retention is 'dense', 'latest', or an interval in tokens, not '{text}'"
        )
    return int(text)


def _blocks(choices: Choices, name: str, full: int) -> frozenset[int]:
    """The blocks in a list like ``0-8, 10``."""
    text = _chosen(choices, name)
    if text == "none":
        return frozenset()
    found: set[int] = set()
    for part in text.split(","):
        first, given, last = part.partition("-")
        first, last = first.strip(), last.strip() if given else first.strip()
        if not (_is_number(first) and _is_number(last)):
            raise ExplanationError(
                f"{name} is a list of blocks like 0-8, 10, or none; '{text}' is not"
            )
        if not int(first) <= int(last) < full:
            raise ExplanationError(
                f"{name}: the prompt has {full} full blocks of that group, counted from 0, and a "
                f"range begins with its lower end; '{part.strip()}' is none of them"
            )
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


def mask_of(choices: Choices, number: int, full: int) -> frozenset[int] | None:
    """The mask of a group whose prompt fills ``full`` blocks, or None if there is none."""
    if not _chosen(choices, f"mask {number}"):
        return None
    return _blocks(choices, f"mask {number}", full)


def cached_of(choices: Choices, number: int, full: int) -> frozenset[int] | None:
    """The cached blocks of a group, or None for those that are registered."""
    text = _chosen(choices, f"cached {number}")
    if text == "registered":
        return None
    if text == "mask":
        if not _chosen(choices, f"mask {number}"):
            raise ExplanationError(f"cached {number} is the mask, but mask {number} is empty")
        return mask_of(choices, number, full)
    return _blocks(choices, f"cached {number}", full)
