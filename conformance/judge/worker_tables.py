"""Worker tables: the block tables by which the forward pass reads and writes.

A worker gets a request's whole block table when the request is admitted or resumed, and after that
only the blocks that ``allocate_slots`` answers, which it appends. So these must be the blocks that
the manager has added, in its order. vLLM: ``_update_states`` in ``v1/worker/gpu_model_runner.py``.
"""

from hitproof.conformance.subject.managers import Tables


class WorkerTables:
    """The tables of all requests that have been scheduled."""

    def __init__(self) -> None:
        self._tables: dict[str, Tables] = {}

    def scheduled(self, request: str, manager_tables: Tables, new: Tables) -> Tables:
        """The request's tables for this step, in which null blocks are as in the manager's.

        What the manager has given up is not read: that the worker still has its number does not
        count. A table is shorter or longer than the manager's where ``new`` is not what was added.
        """
        known = self._tables.get(request)
        if known is None:
            tables = manager_tables
        else:
            tables = tuple((*had, *more) for had, more in zip(known, new, strict=True))
        self._tables[request] = tables
        return tuple(
            tuple(
                0 if place < len(managers) and not managers[place] else block_id
                for place, block_id in enumerate(worker)
            )
            for worker, managers in zip(tables, manager_tables, strict=True)
        )

    def freed(self, request: str) -> None:
        """The request gave up its blocks."""
        self._tables.pop(request, None)
