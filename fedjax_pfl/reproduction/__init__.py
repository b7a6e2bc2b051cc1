"""Published tables: their cells, what was run for them, and how both compare."""
