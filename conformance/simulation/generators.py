"""Generated workloads. Equal arguments and seeds give equal workloads; lengths are in tokens."""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from hitproof.conformance.simulation.tokens import TokenRanges, num_tokens
from hitproof.conformance.simulation.workload import Workload, WorkloadRequest

_APART = 1 << 22
"""Fresh tokens begin at multiples of this, so that no two ranges of them join."""


def _fresh(seed: int) -> Callable[[int], TokenRanges]:
    """``fresh(n)`` gives n tokens that nothing else has."""
    places: Iterator[int] = count(1 + seed * (1 << 16))

    def fresh(length: int) -> TokenRanges:
        first = next(places) * _APART
        return ((first, first + length - 1),)

    return fresh


def conversations(requests: int, tokens: int, seed: int) -> Workload:
    """VLLM PR #43447: conversations of ``tokens`` tokens, one after another, then replayed.

    Each is computed once, and after each the first one is looked up again, which shows what its
    replay would hit by then.
    """
    fresh = _fresh(seed)
    prompts = [fresh(tokens) for _ in range(requests)]
    found = []
    for number, prompt in enumerate(prompts):
        found.append(WorkloadRequest(prompt, name=f"conversation {number + 1}"))
        found.append(WorkloadRequest(prompts[0], name=f"replay after {number}", lookup_only=True))
    return Workload(
        tuple(found),
        f"{requests} conversations of {tokens} tokens, each followed by a replay of the first",
    )


def chat(requests: int, tokens: int, seed: int) -> Workload:
    """Multi-turn chat: users in any order, each turn with all before it."""
    rng, fresh = random.Random(seed), _fresh(seed)
    system = fresh(max(1, tokens // 16))
    users: dict[int, list[tuple[int, int]]] = {}
    found = []
    for number in range(requests):
        user = rng.randrange(max(1, requests // 6))
        said = users.setdefault(user, [*system])
        said += fresh(rng.randint(1, max(1, tokens // 8)))
        answer = fresh(rng.randint(1, max(1, tokens // 16)))
        if num_tokens((*said, *answer)) > tokens:
            said[:] = [*system, said[-1]]
        found.append(WorkloadRequest(tuple(said), answer, f"user {user + 1}, request {number + 1}"))
        said += answer
    return Workload(tuple(found), f"{requests} turns of multi-turn chat, up to {tokens} tokens")


def resends(requests: int, tokens: int, seed: int) -> Workload:
    """Prompts that are sent again as they were: half of all requests, the rest is new."""
    rng, fresh = random.Random(seed), _fresh(seed)
    prompts: list[TokenRanges] = []
    found = []
    for _ in range(requests):
        if not prompts or rng.random() < 0.5:
            prompts.append(fresh(rng.randint(max(1, tokens // 4), max(1, tokens * 7 // 8))))
            index = len(prompts) - 1
        else:
            index = rng.randrange(max(0, len(prompts) - 8), len(prompts))
        answer = fresh(max(1, tokens // 16))
        found.append(WorkloadRequest(prompts[index], answer, f"prompt {index + 1}"))
    return Workload(tuple(found), f"{requests} requests, half of them resends")


def system_prompts(requests: int, tokens: int, seed: int) -> Workload:
    """Shared system prompts: half of the tokens, some of them more frequent than others."""
    rng, fresh = random.Random(seed), _fresh(seed)
    prompts = [fresh(max(1, tokens // 2)) for _ in range(max(1, requests // 8))]
    weights = [1 / rank for rank in range(1, len(prompts) + 1)]
    found = []
    for _ in range(requests):
        (index,) = rng.choices(range(len(prompts)), weights)
        question = fresh(rng.randint(1, max(1, tokens * 7 // 16)))
        found.append(
            WorkloadRequest(
                (*prompts[index], *question), fresh(max(1, tokens // 32)), f"prompt {index + 1}"
            )
        )
    return Workload(tuple(found), f"{requests} requests that share {len(prompts)} system prompts")


def agents(requests: int, tokens: int, seed: int) -> Workload:
    """Branching agents: each request goes on from the end of an earlier one, or starts anew."""
    rng, fresh = random.Random(seed), _fresh(seed)
    root = fresh(max(1, tokens // 4))
    states: list[tuple[tuple[int, int], ...]] = [root]
    found = []
    for number in range(requests):
        state = states[max(rng.randrange(len(states)), rng.randrange(len(states)))]
        prompt = (*state, *fresh(rng.randint(1, max(1, tokens // 8))))
        answer = fresh(rng.randint(1, max(1, tokens // 16)))
        if num_tokens((*prompt, *answer)) > tokens:
            prompt = (*root, prompt[-1])
        found.append(WorkloadRequest(prompt, answer, f"step {number + 1}"))
        states.append((*prompt, *answer))
    return Workload(tuple(found), f"{requests} steps of agents that branch, up to {tokens} tokens")


def documents(requests: int, tokens: int, seed: int) -> Workload:
    """Long documents, each with several short questions, interleaved."""
    rng, fresh = random.Random(seed), _fresh(seed)
    texts = [fresh(max(1, tokens - tokens // 8)) for _ in range(max(1, requests // 4))]
    found = []
    for _ in range(requests):
        index = rng.randrange(len(texts))
        question = fresh(rng.randint(1, max(1, tokens // 16)))
        found.append(
            WorkloadRequest(
                (*texts[index], *question), fresh(max(1, tokens // 64)), f"document {index + 1}"
            )
        )
    return Workload(tuple(found), f"{requests} questions about {len(texts)} documents")


def forks(requests: int, tokens: int, seed: int) -> Workload:
    """One prompt, and lookups of all that may come after it; then of two siblings of half of it.

    A repeat, an extension, the next turn and requests that branch off, as many as there is room
    for: after each token where ``requests`` allow it.
    """
    fresh = _fresh(seed)
    own = max(1, tokens // 8)
    answer, half = fresh(max(1, tokens // 16)), max(1, tokens // 2)
    prompt = fresh(max(1, tokens - num_tokens(answer) - own))
    ((first, last),) = prompt
    found = [WorkloadRequest(prompt, answer, "prompt")]

    def look(name: str, *parts: TokenRanges) -> None:
        tokens = tuple(each for part in parts for each in part)
        found.append(WorkloadRequest(tokens, name=name, lookup_only=True))

    look("repeat", prompt)
    look("extension", prompt, fresh(own))
    look("next turn", prompt, answer, fresh(own))
    places = max(1, min(last - first, requests - 6))
    for number in range(places):
        shared = 1 + number * (last - first) // places
        look(f"branch at {shared}", ((first, first + shared - 1),), fresh(own))
    system = ((first, min(last, first + half - 1)),)
    found.append(WorkloadRequest((*system, *fresh(own)), name="sibling"))
    look("next sibling", system, fresh(own))
    return Workload(tuple(found), f"a prompt, and what may come after it, up to {tokens} tokens")


GENERATORS: Mapping[str, Callable[[int, int, int], Workload]] = {
    "conversations": conversations,
    "chat": chat,
    "resends": resends,
    "system-prompts": system_prompts,
    "agents": agents,
    "documents": documents,
    "forks": forks,
}
"""By name; the arguments are the number of requests, the most tokens of one, and the seed."""
