"""Differences of methods, their intervals, and which of them hold."""
