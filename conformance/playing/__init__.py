"""Playing a history on a manager, and making histories smaller."""
