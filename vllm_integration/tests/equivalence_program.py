"""A program that says what is known of a function of a release and an edited version of it."""

import json
import sys
from pathlib import Path

from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.equivalence import settled

root, name, *edits = sys.argv[1:]
sys.path.insert(0, root)
module = "vllm.v1.core.single_type_kv_cache_manager"
text = Path(root, f"{module.replace('.', '/')}.py").read_text()
for old, new in zip(edits[::2], edits[1::2], strict=True):
    assert old in text, f"{old!r} is not in the release"
    text = text.replace(old, new)
message = {"texts": {module: text}, "module": module, "name": name, "seconds": 300.0}
print("ANSWER", json.dumps(settled(VllmSubject(frozenset()), message)))
