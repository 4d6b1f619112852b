"""Request and answer, one line each, within a time limit whatever the other process does."""

import os
import select
import time
from collections.abc import Callable

_MOST_BYTES = 1 << 28
"""The longest valid answer, in bytes."""

_PAUSE = 0.1  # seconds between two looks whether the process is there


class Channel:
    """Two pipes, by their file descriptors, which it closes.

    A process that ends may leave forks that keep the pipes open, so ``alive`` is checked as well.
    """

    def __init__(self, requests: int, answers: int, alive: Callable[[], bool]) -> None:
        self._requests, self._answers, self._alive = requests, answers, alive
        for end in (requests, answers):
            os.set_blocking(end, False)

    def close(self) -> None:
        """Close both pipes."""
        os.close(self._requests)
        os.close(self._answers)

    def exchange(self, line: bytes, seconds: float) -> bytes:
        """Send a line and wait for one.

        Raises `TimeoutError`, `EOFError` when the other end is gone, and `ValueError` when what it
        sends is not an answer.
        """
        until = time.monotonic() + seconds
        unsent, answer = memoryview(line), bytearray()
        while not answer.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            was_alive = self._alive()
            writing = [self._requests] if unsent else []
            readable, writable, _ = select.select([self._answers], writing, [], min(left, _PAUSE))
            if writable:
                try:
                    unsent = unsent[os.write(self._requests, unsent) :]
                except BrokenPipeError:
                    unsent = memoryview(b"")  # it may have answered before it ended
            if readable:
                piece = os.read(self._answers, 1 << 20)
                if not piece:
                    raise EOFError
                answer += piece
                if b"\n" in piece[:-1] or len(answer) > _MOST_BYTES:
                    raise ValueError("it is not one line")
            elif not was_alive:
                raise EOFError
        return bytes(answer)
