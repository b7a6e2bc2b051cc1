"""A config, checked and typed."""
