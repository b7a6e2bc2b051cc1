"""Published tables: their cells, and how what was run compares with them."""
