"""A run from its start to its result: stages x rounds x seeds."""
