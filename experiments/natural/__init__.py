"""Sets whose clients exist: where they come from, and their readers."""
