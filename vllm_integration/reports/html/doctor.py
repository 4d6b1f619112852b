"""The page of `hitproof doctor`."""

from hitproof.vllm_integration.gate.doctor import Diagnosis
from hitproof.vllm_integration.reports import doctor as rendering
from hitproof.vllm_integration.reports.html.pages import page


def doctor_page(found: Diagnosis, command: str) -> str:
    """The page of a diagnosis; ``command`` is what made it."""
    return page(
        "doctor.html",
        command,
        title=f"{found.wanted.model.name} on vLLM {found.target.label}",
        found=found,
        facts=[*rendering.facts(found), *rendering.wrong(found)],
        groups=rendering.groups_in_rows(found),
        requests=rendering.requests_in_tables(found),
        columns=rendering.COLUMNS,
        cells=rendering.cells,
        shortest=rendering.shortest_in_words(found),
        lists=[
            ("Why hits are lost", rendering.causes(found)),
            ("Other arguments", list(map(rendering.change_in_words, found.arguments))),
            ("Other releases", list(map(rendering.change_in_words, found.releases))),
        ],
    )
