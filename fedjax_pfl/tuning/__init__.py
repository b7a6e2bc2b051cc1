"""Sweeps: many settings trained, compared on validation, and one chosen."""
