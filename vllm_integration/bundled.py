"""The data files that hitproof comes with."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent

LEDGER = _HERE / "ledger.toml"
"""The known divergences of vLLM."""
EQUIVALENTS = _HERE / "gate" / "equivalents.toml"
"""Mutants that are equivalent to the original."""
READS = _HERE / "gate" / "reads.toml"
"""What the releases read of their inputs."""
BRANCHES = _HERE / "gate" / "branches.json"
"""Which share of the branches of releases runs while they are judged."""
NOT_RUN = _HERE / "gate" / "branches.toml"
"""Why the other branches do not run."""
FAULTS = _HERE / "survey" / "faults.toml"
"""The distinct faults behind known divergences."""
SURVEY = _HERE / "survey" / "survey.json"
"""Which release has which fault."""
COSTS = _HERE / "survey" / "costs.json"
"""What faults cost, in hit rates."""
FIXES = _HERE / "fixes"
"""Patches that remove faults, in a directory for each release."""
CONTENT = _HERE / "targets" / "content.json"
"""What the judged files of releases have; see `targets.content`."""
MODELS = _HERE / "models"
"""Configurations of models by name, with the fields that decide groups and block sizes."""
