"""From results of runs to figures, tables and a page."""
