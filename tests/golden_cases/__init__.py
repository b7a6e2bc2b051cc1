"""Checks of the golden cases: one family of algorithms a file."""
