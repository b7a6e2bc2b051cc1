"""The files that a run writes, and the database of all results."""
