"""A program that proves statements about the target at a path, and prints what is known of them."""

import json
import sys

from hitproof.conformance.scope.profiles import Profile
from hitproof.vllm_integration.adapter.subject import VllmSubject
from hitproof.vllm_integration.gate.unbounded import statements
from hitproof.vllm_integration.worker.unbounded import settled

root, *wanted = sys.argv[1:]
sys.path.insert(0, root)
subject = VllmSubject(frozenset())
found = {
    name: settled(subject, {"name": name, "seconds": 300.0})
    for name in wanted or statements(Profile.DEFAULT)
}
print(json.dumps(found))
