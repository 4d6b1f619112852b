"""A program that says what is known of a function of a release and an edited version of it.

It reads JSON: the module, the name of its function and the edits, each what is there and what is
there instead.
"""

import json
import sys
from pathlib import Path

from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.equivalence import settled

sys.path.insert(0, sys.argv[1])
module, name, edits = json.load(sys.stdin)
text = Path(sys.argv[1], f"{module.replace('.', '/')}.py").read_text()
for old, new in edits:
    assert old in text, f"{old!r} is not in the release"
    text = text.replace(old, new)
message = {"texts": {module: text}, "module": module, "name": name, "seconds": 300.0}
print("ANSWER", json.dumps(settled(VllmSubject(frozenset()), message)))
