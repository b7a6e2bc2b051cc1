"""Entries of the leaderboard by others: their files, and their check."""
