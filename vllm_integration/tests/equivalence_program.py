"""A program that says what is known of functions of a release and edited versions of them.

It reads JSON, for each version the module, the name of its function and its edits, each what is
there and what is there instead.
"""

import json
import sys
from pathlib import Path

from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.equivalence import settled

sys.path.insert(0, sys.argv[1])
found = {}
for version, (module, name, edits) in json.load(sys.stdin).items():
    text = Path(sys.argv[1], f"{module.replace('.', '/')}.py").read_text()
    for old, new in edits:
        assert old in text, f"{old!r} is not in the release"
        text = text.replace(old, new)
    message = {"texts": {module: text}, "module": module, "name": name, "seconds": 300.0}
    found[version] = settled(VllmSubject(frozenset()), message)
print("ANSWER", json.dumps(found))
