"""``hitproof campaign``."""

import sys
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hitproof.conformance.words import count
from hitproof.vllm_integration.campaign.engines import Engine, EngineError, Local, OnRay
from hitproof.vllm_integration.campaign.kinds import KINDS
from hitproof.vllm_integration.campaign.plans import CampaignError, Given
from hitproof.vllm_integration.campaign.running import Live, Until, run
from hitproof.vllm_integration.campaign.serving import Setting
from hitproof.vllm_integration.campaign.store import MERGED, Store, StoreError
from hitproof.vllm_integration.commands.options import Format, OneWorker
from hitproof.vllm_integration.commands.outputs import Outputs, given_by_user
from hitproof.vllm_integration.commands.running import (
    announce,
    as_document,
    fail,
    failures,
    jobs,
    wanted_profile,
)
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.reports.campaign import campaign_json, print_campaign
from hitproof.vllm_integration.reports.html.charts import campaign_page
from hitproof.vllm_integration.sandbox.driver import JOBS, Limits
from hitproof.vllm_integration.verdict import Verdict

What = StrEnum("What", [(name, name) for name in KINDS])  # type: ignore[misc]


def campaign(
    context: typer.Context,
    what: Annotated[What, {"kinds": ", ".join(KINDS)}],
    subjects: list[str],
    hours: float | None = None,
    number: int | None = None,
    workers: int = JOBS,
    cluster: str | None = None,
    out: Path | None = None,
    seed: str = "1",
    family: Family = Family.SINGLE_POINT,
    quick: bool = False,
    thorough: bool = False,
    html: Path | None = None,
    output: Format = Format.TEXT,
    seconds: float = 1800.0,
    limits: OneWorker = Limits(timeout=120.0),
) -> None:
    """Run many small jobs on all cores, or on a Ray cluster, and keep each result.

    Ctrl-C ends it, and so does TERM, also in the background of a shell that has it ignore Ctrl-C;
    the same command resumes it. The exit code is 1 if something is found
    that neither the ledger nor BUGS.md has, and 3 if something could not be judged.
    """
    kind = KINDS[what]
    profile = wanted_profile(quick, thorough, output)
    outputs = Outputs(context, output, html)
    for name in sorted(frozenset().union(*(each.takes for each in KINDS.values())) - kind.takes):
        if given_by_user(context, name):
            takers = " and ".join(each.name for each in KINDS.values() if name in each.takes)
            sentence = f"--{name} is for campaigns of {takers}; leave it out for {kind.name}"
            fail(Verdict.USAGE, sentence, output)
    if kind.endless and hours is None and number is None:
        sentence = f"a campaign of {kind.name} has no end of its own; give --hours or --jobs"
        fail(Verdict.USAGE, sentence, output)
    place = out or Path(f"campaign-{kind.name}")
    with failures(output, CampaignError, StoreError):
        try:
            # On a cluster each machine has an interpreter of its own.
            own = "" if cluster and limits.python == sys.executable else limits.interpreter
            setting = Setting(replace(limits, python=own), seconds)
            options = {"seed": seed, "family": str(family), "profile": str(profile)}
            given = kind.prepare(subjects, Given({}, setting, options), announce)
            with closing(Store(place)) as store:
                if store.damaged:
                    lines = count(store.damaged, "damaged line")
                    announce(f"{place} has {lines}; their jobs are run again")
                with jobs(f"campaign of {kind.name}") as progress:

                    def show_live(live: Live) -> None:
                        progress(live.done, live.planned, live.seen)

                    engine: Engine = (
                        Local(workers, kind.work, setting)
                        if cluster is None
                        else OnRay(cluster, kind.work, setting)
                    )
                    with closing(engine):
                        found = run(kind, given, store, engine, Until(number, hours), show_live)
                log = store.log()
        except EngineError as error:
            kept = "finished jobs are kept; run the same command again to resume"
            fail(error.verdict, f"{error}; {kept}", output)
        except BaseException as error:
            if not isinstance(error, Exception):  # a signal
                announce(f"finished jobs are kept in {place}; run the same command again to resume")
            raise
    announce(f"results: {place / MERGED}")
    outputs.show(
        {"json": lambda: as_document(campaign_json(found, log))},
        lambda console: print_campaign(found, console),
        lambda command: campaign_page(found, log, command),
    )
    raise typer.Exit(int(found.verdict))
