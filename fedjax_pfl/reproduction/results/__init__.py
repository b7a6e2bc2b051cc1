"""Gather runs in one file of results, and merge such files."""
