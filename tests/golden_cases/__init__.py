"""How the golden cases are played: one family of algorithms a file."""
