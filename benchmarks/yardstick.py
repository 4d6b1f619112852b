"""The yardstick: what hitproof finds, compared with what it found when that was frozen.

``python -m benchmarks.yardstick`` compares this tree with the facts in ``benchmarks/frozen/``, for
instance that `check` finds a signature on a release. A fact that no longer holds, says something
else, or has a smaller number is a loss: each is printed as one sentence, and the exit code is 1.
What is found in addition is printed, too, but is no loss. PARTS restricts the comparison; without
it, the parts that take longest are left out.

``--freeze`` writes the facts of this tree, and the commit that it is at. Later runs take the corpus
from that commit and time its tree, so freeze at a commit that stays in the history, and name in the
commit message what changed on purpose.

Only the command line, its JSON and the faults of BUGS are used, so that the rest can be rebuilt.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

from hitproof.conformance.findings.signatures import Signature
from hitproof.conformance.words import count
from hitproof.vllm_integration.survey import faults as bugs

ROOT = Path(__file__).resolve().parents[1]
FROZEN = Path(__file__).parent / "frozen"
RELEASES = ("0.22.1", "0.23.0", "0.26.0", "0.33.0")
OF_FAULTS = ("0.15.0", "0.19.1", "0.20.0", "0.21.0", "0.27.0", "0.29.0", "0.30.0", "0.32.0")
"""A smallest set of releases that have the faults which none of `RELEASES` has."""
NEWEST = RELEASES[-1]
SAMPLES = (
    "--family structured --sample 40 --seed 191",
    "--family single-point --quick --sample 40 --seed 195",
    "--family single-point --sample 40 --seed 194",
    "--family scheduler --sample 60 --seed 192",
)
"""Options of `selftest`: the mutants of which README gave the shares when they were frozen."""
TIMED = (f"check {NEWEST} --quick --no-cache", f"check {NEWEST} --no-cache", "prove")
CORPUS = "conformance/histories/corpus.jsonl"
"""The corpus, at the commit that was frozen."""

Facts: TypeAlias = dict[str, float | str]
"""What holds, by a sentence: 1 for true, a number of which more is better, or a word."""


class YardstickError(Exception):
    """Something cannot be compared; the message is one sentence."""


@dataclass(frozen=True)
class Frozen:
    """The facts of a part, and the commit of the tree in which they held."""

    commit: str
    facts: Facts


@dataclass(frozen=True)
class Part:
    """One part of the comparison.

    Attributes:
        about: what it compares.
        measure: the facts of this tree; it is given the commit that was frozen.
        is_default: whether it is compared unless other parts are named.
        slack: the factor by which a number may be smaller, for what varies from run to run.
        goal: what is frozen instead of what is measured, if anything.
    """

    about: str
    measure: Callable[[str], Facts]
    is_default: bool = True
    slack: float = 1.0
    goal: Facts | None = None


def compare(frozen: Facts, now: Facts, slack: float = 1.0) -> tuple[list[str], list[str]]:
    """The losses and the gains, one sentence each."""
    losses = []
    gains = [
        f"gained: {fact}: {value}" if isinstance(value, str) else f"gained: {fact}"
        for fact, value in now.items()
        if fact not in frozen
    ]
    for fact, before in frozen.items():
        after = now.get(fact)
        if after is None:
            losses.append(f"lost: {fact}")
        elif isinstance(before, str) or isinstance(after, str):
            if after != before:
                losses.append(f"changed: {fact}: {after}, was {before}")
        elif after * slack < before:
            losses.append(f"less: {fact}: {after:g}, was {before:g}")
        elif after > before * slack:
            gains.append(f"more: {fact}: {after:g}, was {before:g}")
    return losses, gains


def hitproof(*arguments: str, tree: Path = ROOT) -> Any:
    """What a command of a tree prints as JSON. Raises `YardstickError`."""
    code = "from hitproof.vllm_integration.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments, "--format", "json"]
    print(f"running hitproof {' '.join(arguments)}", file=sys.stderr, flush=True)
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        printed = json.loads(done.stdout)
    except ValueError:
        printed = None
    if printed is None or "error" in printed or done.returncode not in (0, 1, 3):
        raise YardstickError(
            f"hitproof {' '.join(arguments)} exits with {done.returncode}: {done.stderr[-300:]!r}"
        )
    return printed


def seconds(tree: Path, command: str) -> float:
    """How long a command of a tree takes. Raises `YardstickError`."""
    started = time.perf_counter()
    hitproof(*command.split(), tree=tree)
    return time.perf_counter() - started


def git(*arguments: str) -> str:
    """What git prints in this repository. Raises `YardstickError`."""
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise YardstickError(
            f"git {' '.join(arguments)} fails in {ROOT}; use a clone with its whole history: "
            f"{done.stderr.strip()}"
        )
    return done.stdout


class Found(NamedTuple):
    """A signature that `check` finds on a release.

    Attributes:
        code: how the spec is broken, with parameters.
        place: the other parts of the signature.
        standing: whether the ledger has it.
        faults: the faults of BUGS that it comes from, by number.
    """

    code: str
    place: str
    standing: str
    faults: tuple[int, ...]

    @property
    def words(self) -> str:
        """What is said of it."""
        causes = " and ".join(map(str, self.faults)) or "not in BUGS"
        return f"{self.standing}, fault {causes}"


@cache
def checked(release: str, *options: str) -> Any:
    """The report of `check` on a release; parts share it."""
    return hitproof("check", release, "--timeout", "600", *options)


def found(release: str, *options: str) -> Iterator[Found]:
    """What `check` finds on a release."""
    report, known = checked(release, *options), bugs.load()
    for name, standing in (("known_divergences", "known"), ("findings", "new")):
        for each in report[name]:
            signature = Signature.from_json(each["signature"])
            faults = tuple(fault.number for fault in known if fault.explains(signature, release))
            yield Found(str(signature.defect), place(signature), standing, faults)


def place(signature: Signature) -> str:
    """The parts of a signature without its code."""
    eagle = " with EAGLE" if signature.eagle else ""
    return f"({signature.divergence}, {signature.kind}{eagle}, {signature.claim})"


def of_check(_: str) -> Facts:
    """What `check` finds, and which claims it settles and refutes."""
    facts: Facts = {}
    for release in RELEASES:
        facts |= {f"{release} has {each.code} {each.place}": each.words for each in found(release)}
        obligations = checked(release)["obligations"]
        unsettled = {each["claim"] for each in obligations if each["status"] == "inconclusive"}
        for each in obligations:
            if each["claim"] not in unsettled:
                facts[f"{release} is judged by {each['claim']}"] = 1
            if each["status"] == "refuted":
                facts[f"{release} refutes {each['claim']}"] = 1
    return facts


def of_corpus(commit: str) -> Facts:
    """What each history of the frozen corpus shows on each release."""
    facts: Facts = {}
    with TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.jsonl")
        corpus.write_text(git("show", f"{commit}:{CORPUS}"), encoding="utf-8")
        for release in RELEASES:
            for each in hitproof("replay", str(corpus), release, "--timeout", "600")["histories"]:
                played = f"{release} with corpus history {each['number']}"
                if each["verdict"] != "inconclusive":
                    facts[f"{played} is judged"] = 1
                for finding in each["findings"]:
                    signature = Signature.from_json(finding["signature"])
                    facts[f"{played} has {signature.defect} {place(signature)}"] = 1
    return facts


def of_faults(_: str) -> Facts:
    """By which codes each fault of BUGS is found, on any of the releases."""
    reports = [found(each) for each in RELEASES] + [found(each, "--quick") for each in OF_FAULTS]
    return {
        f"fault {number} is found by {each.code}": 1
        for each in chain.from_iterable(reports)
        for number in each.faults
    }


def of_branches(_: str) -> Facts:
    """How many branches of each module of vLLM's managers run, and are judged."""
    (share,) = hitproof("branches", NEWEST, "--timeout", "600")
    return {f"branches of {name} are run": each["run"] for name, each in share["modules"].items()}


def of_selftest(_: str) -> Facts:
    """The share of mutants that are caught in each sample, in percent."""
    reports = {each: hitproof("selftest", NEWEST, *each.split()) for each in SAMPLES}
    return {f"selftest {each}: mutants are caught": r["share"] for each, r in reports.items()}


def of_speed(commit: str) -> Facts:
    """The speed of this tree, in that of the frozen one: the median of runs that alternate."""
    facts: Facts = {}
    with TemporaryDirectory() as folder:
        frozen = Path(folder, "frozen")
        git("worktree", "add", "--detach", str(frozen), commit)
        try:
            for command in TIMED:
                pairs = [(seconds(frozen, command), seconds(ROOT, command)) for _ in range(3)]
                ratio = median(after / before for before, after in pairs)
                print(f"{command}: {ratio:.2f} times the seconds of the frozen tree", flush=True)
                facts[f"speed of hitproof {command}"] = 1 / ratio
        finally:
            git("worktree", "remove", "--force", str(frozen))
    return facts


PARTS = {
    "check": Part("findings and claims of `check`", of_check),
    "corpus": Part("findings of `replay` in the corpus", of_corpus),
    "faults": Part("each fault of BUGS, by its codes", of_faults),
    "branches": Part("branches of vLLM's managers that run", of_branches, is_default=False),
    "selftest": Part(
        "shares of mutants that are caught; takes hours", of_selftest, is_default=False
    ),
    "speed": Part(
        "seconds, compared with the frozen tree; needs an idle machine",
        of_speed,
        is_default=False,
        slack=1.05,
        goal={f"speed of hitproof {command}": 1 for command in TIMED},
    ),
}


def freeze(name: str, commit: str) -> str:
    """Write the facts of a part; the answer says so."""
    part = PARTS[name]
    facts = part.measure(commit) if part.goal is None else part.goal
    document = {"commit": commit, "facts": dict(sorted(facts.items()))}
    (FROZEN / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return f"{name}: froze {count(facts, 'fact')}"


def read(name: str) -> Frozen:
    """The frozen facts of a part. Raises `YardstickError`."""
    path = FROZEN / f"{name}.json"
    try:
        return Frozen(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise YardstickError(
            f"{path} cannot be read ({error!r}); make it with "
            f"python -m benchmarks.yardstick --freeze {name}"
        ) from error


def hold(name: str) -> bool:
    """Print what is lost and gained in a part; whether something is lost."""
    frozen = read(name)
    part = PARTS[name]
    losses, gains = compare(frozen.facts, part.measure(frozen.commit), part.slack)
    for line in (*losses, *gains):
        print(line)
    told = f"{count(frozen.facts, 'fact')} frozen, {len(losses)} lost, {len(gains)} gained"
    print(f"{name}: {told}", flush=True)
    return bool(losses)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.yardstick",
        description=__doc__,
        epilog="\n".join(f"{name:9} {part.about}" for name, part in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PARTS", help=", ".join(PARTS))
    parser.add_argument("--freeze", action="store_true", help="write the facts of this tree")
    options = parser.parse_args(arguments)
    if unknown := [each for each in options.parts if each not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; name some of {', '.join(PARTS)}")
    names = options.parts or [name for name, part in PARTS.items() if part.is_default]
    try:
        if options.freeze:
            commit = git("rev-parse", "HEAD").strip()
            for name in names:
                print(freeze(name, commit), flush=True)
            return
        lost = [name for name in names if hold(name)]
    except YardstickError as error:
        parser.error(str(error))
    sys.exit(bool(lost))


if __name__ == "__main__":
    main()
