"""Histories that are kept as data: the corpus, and series for what generated ones rarely have.

The *corpus* is few histories that together run and show what thousands of generated ones do.
`hitproof branches --distil` writes it: a history of a manager or of a scheduler in each line, the
one that adds most first.

*Series* do not change, so that what they show of one release can be compared with another. Each is
in a file of its name; `conformance.judge.judged_replay` judges every step.

- ``situations``: requests with adapters, salts and images, on engines of each shape, go through
  everything while others run: chunks, decoding, drafts, preemption, loads, eviction and resets.
- ``fine_situations``: the same where hits may end inside blocks; states whose tokens, hashes or
  steps run out, copies of the last free blocks, and a tail that is evicted before it is copied.
- ``edges``: requests that barely fit into the pool, or barely do not, and rare shapes: images at
  the end of a prompt, windows that are computed again, a load beside hits that go next.
- ``connections``: a KV connector sends and loads blocks, at once and later, in part and in vain,
  while others hold blocks and take free ones.
- ``modules``: texts that diverge around the boundaries which several MTP modules look past.
- ``families``: what one request leaves in the cache, and what a resend, extensions, shorter ones
  and siblings hit of it, while blocks of the prefix are evicted one by one.
- ``fine_families``: what the end of a prompt leaves inside a block, and what hits it, while others
  resend the prompt, extend it and diverge inside it. The first are the most revealing.
- ``twins``, ``fine_twins``: requests of the same tokens that share nothing, in the same steps: each
  has a twin with another adapter, salt or image, which does all that it does right after it.
- ``uncached``: engines without prefix caching, with preemption, loads and few blocks.

Two are of schedulers, which derive groups from layers at start-up:

- ``layers``: first 62 models as they are served, then mixes of layers of many sorts, sizes and
  numbers; some requests that reuse each other's prefixes, and memory for a few of them.
- ``spread_layers``: start-up alone: as many layers of two sorts as each of twelve models has, on
  two, four and one pipeline ranks; then random numbers, sizes and orders, also with a third sort.
"""

from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path

from hitproof.conformance.histories.json_format import read
from hitproof.conformance.histories.schema import History
from hitproof.conformance.histories.workload_json import read_workload
from hitproof.conformance.histories.workloads import SchedulerHistory

_SERIES = Path(__file__).resolve().parent / "series"


@cache
def _lines(name: str) -> list[str]:
    return (_SERIES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


def num_of(name: str) -> int:
    """How many histories the series of that name has."""
    return len(_lines(name))


@cache
def one_of(name: str, number: int) -> History:
    """The history of that number, from 0, of a series. Raises IndexError where there is none."""
    return read(_lines(name)[number], f"history {number} of {name}")


def workload_of(name: str, number: int) -> SchedulerHistory:
    """The same of a series of schedulers."""
    return read_workload(_lines(name)[number], f"history {number} of {name}")


def series(name: str) -> list[History]:
    """All histories of a series."""
    return [one_of(name, number) for number in range(num_of(name))]


CORPUS = Path(__file__).resolve().parent / "corpus.jsonl"
"""Where it is."""


@cache
def corpus() -> dict[str, str]:
    """The histories as JSON text, by a name that is another where a history is."""
    return named(CORPUS.read_text(encoding="utf-8").splitlines())


def named(lines: Iterable[str]) -> dict[str, str]:
    """Histories as JSON text, by their names."""
    return {sha256(line.encode()).hexdigest()[:8]: line for line in lines}
