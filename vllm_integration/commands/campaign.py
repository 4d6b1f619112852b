"""``hitproof campaign``."""

import sys
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from functools import partial
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
from hitproof.vllm_integration.commands.frame import Answer, command, given_by_user
from hitproof.vllm_integration.commands.options import OneWorker, Refusal, Scope
from hitproof.vllm_integration.commands.running import announce, jobs
from hitproof.vllm_integration.families import Family
from hitproof.vllm_integration.reports.campaign import campaign_json, print_campaign
from hitproof.vllm_integration.reports.html.charts import campaign_page
from hitproof.vllm_integration.sandbox.driver import JOBS, Limits

What = StrEnum("What", [(name, name) for name in KINDS])  # type: ignore[misc]


@command(CampaignError, StoreError, page=True)
def campaign(
    context: typer.Context,
    what: Annotated[What, {"kinds": ", ".join(KINDS)}],
    subjects: list[str],
    scope: Scope,
    hours: float | None = None,
    number: int | None = None,
    workers: int = JOBS,
    cluster: str | None = None,
    out: Path | None = None,
    seed: str = "1",
    family: Family = Family.SINGLE_POINT,
    seconds: float = 1800.0,
    limits: OneWorker = Limits(timeout=120.0),
) -> Answer:
    """Run many small jobs on all cores, or on a Ray cluster, and keep each result.

    Ctrl-C ends it, and so does TERM, also in the background of a shell that has it ignore Ctrl-C;
    the same command resumes it. The exit code is 1 if something is found
    that neither the ledger nor BUGS.md has, and 3 if something could not be judged.
    """
    kind = KINDS[what]
    for name in sorted(frozenset().union(*(each.takes for each in KINDS.values())) - kind.takes):
        if given_by_user(context, name):
            takers = " and ".join(each.name for each in KINDS.values() if name in each.takes)
            raise Refusal(f"--{name} is for campaigns of {takers}; leave it out for {kind.name}")
    if kind.endless and hours is None and number is None:
        raise Refusal(f"a campaign of {kind.name} has no end of its own; give --hours or --jobs")
    place = out or Path(f"campaign-{kind.name}")
    try:
        # On a cluster each machine has an interpreter of its own.
        own = "" if cluster and limits.python == sys.executable else limits.interpreter
        setting = Setting(replace(limits, python=own), seconds)
        options = {"seed": seed, "family": str(family), "profile": str(scope.profile)}
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
        raise Refusal(f"{error}; {kept}", error.verdict) from error
    except BaseException as error:
        if not isinstance(error, Exception):  # a signal
            announce(f"finished jobs are kept in {place}; run the same command again to resume")
        raise
    announce(f"results: {place / MERGED}")
    return Answer(
        found.verdict,
        partial(print_campaign, found),
        partial(campaign_json, found, log),
        page=partial(campaign_page, found, log),
    )
