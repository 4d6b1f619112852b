"""Streaming sessions while a scheduler plays them: which inputs may come, and which have ended.

A session gets its inputs in order, and closes with the last one, or later, where it is left open.
"""

from collections.abc import Iterator, Mapping

from hitproof.conformance.histories.workloads import SchedulerHistory


class Sessions:
    """Follows the sessions of one history; the mappings are those of its player.

    ``waiting`` has the requests that have yet to come, ``arrived`` and ``ended`` those that have
    come and ended, each by name.
    """

    def __init__(
        self,
        history: SchedulerHistory,
        waiting: Mapping[str, object],
        arrived: Mapping[str, int],
        ended: Mapping[str, int],
    ) -> None:
        self._requests, self._sessions = history.requests, history.sessions
        self._waiting, self._arrived, self._ended = waiting, arrived, ended
        self._closing: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def inputs(self, name: str) -> list[str]:
        """The inputs of a request's session, in order; itself if it is in none."""
        session = self._requests[name].session
        return [name] if session is None else self._sessions[session]

    def follows(self, name: str) -> bool:
        """Whether all inputs of its session that come before a request have arrived."""
        return all(each in self._arrived for each in self._before(name))

    def is_its_turn(self, name: str) -> bool:
        """Whether all inputs of its session that come before a request have ended."""
        return all(each in self._ended for each in self._before(name))

    def closes(self, name: str) -> str | None:
        """The session that closes as a request arrives, if one does."""
        arrival = self._requests[name]
        last = arrival.session is not None and name == self._sessions[arrival.session][-1]
        return arrival.session if last and not arrival.open_steps else None

    def finished(self, name: str, step: int) -> None:
        """Note that an input has ended, after which its session may stay open for some steps."""
        arrival = self._requests[name]
        if arrival.open_steps:
            self._closing[str(arrival.session)] = step + arrival.open_steps

    def due(self, step: int) -> Iterator[str]:
        """The sessions that have stayed open for as long as they were to."""
        for session, last in list(self._closing.items()):
            if step >= last:
                del self._closing[session]
                yield session

    @property
    def idle(self) -> int:
        """How many sessions wait for their next input."""
        return sum(
            inputs[0] in self._arrived
            and all(each in self._ended for each in inputs if each in self._arrived)
            and (session in self._closing or any(each in self._waiting for each in inputs))
            for session, inputs in self._sessions.items()
        )

    @property
    def have_begun(self) -> bool:
        """Whether an input of some session has ended; before, it is like any request."""
        return any(inputs[0] in self._ended for inputs in self._sessions.values())

    def _before(self, name: str) -> list[str]:
        inputs = self.inputs(name)
        return inputs[: inputs.index(name)]
