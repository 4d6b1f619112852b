"""Errors that show a fault of hitproof itself; importable without loading a solver."""


class ReplayError(Exception):
    """A model does not hold on ints, or contradicts a proof: hitproof itself is wrong."""


class PathError(Exception):
    """A path of a function was not followed: hitproof itself is wrong."""


class SecondSolverError(Exception):
    """The second solver does not understand the text: hitproof itself is wrong."""
