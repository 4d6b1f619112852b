"""A program that says what is known of functions of a release and edited versions of them.

It reads JSON, for each version the name of its function and its edits, each what is there and what
is there instead.
"""

import json
import sys
from pathlib import Path

from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.worker.equivalence import settled

_MODULE = "vllm.v1.core.single_type_kv_cache_manager"

sys.path.insert(0, sys.argv[1])
original = Path(sys.argv[1], f"{_MODULE.replace('.', '/')}.py").read_text()
found = {}
for version, (name, edits) in json.load(sys.stdin).items():
    text = original
    for old, new in edits:
        assert old in text, f"{old!r} is not in the release"
        text = text.replace(old, new)
    message = {"texts": {_MODULE: text}, "module": _MODULE, "name": name, "seconds": 300.0}
    found[version] = settled(VllmSubject(frozenset()), message)
print("ANSWER", json.dumps(found))
