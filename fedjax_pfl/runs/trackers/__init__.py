"""Trackers: a file each, imported only when a run asks for it."""
