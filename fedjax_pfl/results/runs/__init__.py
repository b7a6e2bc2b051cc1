"""Run directories -> records, and groups of seeds."""
