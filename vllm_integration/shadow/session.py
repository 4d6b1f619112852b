"""The shadow of one process from its start to its end."""

from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.version import Version

from hitproof.conformance.ledger.ledger import LedgerError
from hitproof.conformance.subject.failures import CannotJudge
from hitproof.vllm_integration.adapter.aliases import AliasError, take_up
from hitproof.vllm_integration.gate.policies import chosen_values
from hitproof.vllm_integration.shadow.beside_reference import policies_of as policies_of_reference
from hitproof.vllm_integration.shadow.hooks import Hooks
from hitproof.vllm_integration.shadow.recorder import write_histories
from hitproof.vllm_integration.shadow.report import LEDGERS, Report, load_known
from hitproof.vllm_integration.shadow.scope import policies_of
from hitproof.vllm_integration.shadow.watch import Watch
from hitproof.vllm_integration.targets.descent import UNKNOWN, by_content, number, of_tree
from hitproof.vllm_integration.targets.target import TargetError, check_aliases


class SessionError(Exception):
    """The shadow cannot start; the message names the remedy."""


class Session:
    """Shadows every manager of the process until `close`.

    ``ledgers`` are files of known divergences, hitproof's own where None; ``policies`` are written
    NAME=VALUE; ``record`` is where lives are written; ``release`` is what vLLM is compared with,
    that which it is or descends from where None; ``aliases`` are new names, each as ``new=old``.
    Raises `SessionError`.
    """

    def __init__(
        self,
        ledgers: Sequence[Path] | None = None,
        policies: Sequence[str] = (),
        record: Path | None = None,
        *,
        release: str | None = None,
        aliases: Sequence[str] = (),
        thorough: bool = True,
        judges: Callable[[str], bool] = lambda _: True,
        on_off: Callable[[str], None] | None = None,
    ) -> None:
        try:
            if checked := check_aliases(aliases):
                take_up(checked)
            self.version = imported_version() if release is None else number(Version(release))
            known = load_known(self.version, LEDGERS if ledgers is None else ledgers)
            in_force = policies_of(self.version, chosen_values(policies, for_histories=True))
            self.report = Report(known)
            self.watch = Watch(
                self.report,
                in_force,
                reference=policies_of_reference(self.version),
                thorough=thorough,
                records=record is not None,
                judges=judges,
                on_off=on_off,
            )
            renamed = {new: old for new, _, old in (each.partition("=") for each in aliases)}
            self._hooks = Hooks(self.watch, renamed)
        except ImportError as error:
            raise SessionError(f"vLLM cannot be imported ({error}); put it on the path") from error
        except (LedgerError, ValueError, CannotJudge, AliasError, TargetError) as error:
            raise SessionError(str(error)) from error
        self._record = record
        self._recorded: list[str] = []

    def close(self) -> None:
        """Take the hooks off, and write what was recorded."""
        self.watch.on = False
        self._hooks.remove()
        if self._record is None:
            return
        try:
            written, ended = write_histories(self._record, self.watch.transcripts)
        except OSError as error:
            self._recorded = [f"{self._record} cannot be written ({error.strerror})"]
            return
        self._recorded = [f"{self._record} has {written} histories, {len(ended)} lives are cut:"]
        self._recorded += [f"  {n} times: {why}" for why, n in Counter(ended).most_common(10)]

    def lines(self) -> list[str]:
        """The report as people read it."""
        return [*self.report.lines(), *self._recorded]


def imported_version() -> str | None:
    """The release of the imported vLLM, or that it descends from; None where nothing says it."""
    import vllm

    where = getattr(vllm, "__file__", None)
    if where is None:
        return None
    root = Path(where).resolve().parent.parent
    descent = of_tree(root)
    if descent.release is not None:
        return descent.release
    try:
        installed = distribution("vllm")
        if Path(str(installed.locate_file("vllm"))).resolve() == root / "vllm":
            return number(Version(installed.version))
    except PackageNotFoundError:
        pass
    return by_content(root, UNKNOWN).release
