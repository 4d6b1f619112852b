"""The page of `hitproof doctor`."""

from hitproof.vllm_integration.gate.doctor import Diagnosis
from hitproof.vllm_integration.reports.doctor import told
from hitproof.vllm_integration.reports.html.pages import page


def doctor_page(found: Diagnosis, command: str) -> str:
    """The page of a diagnosis; ``command`` is what made it."""
    return page(
        "doctor.html",
        command,
        title=f"{found.wanted.model.name} on vLLM {found.target.label}",
        **told(found),
    )
