"""From image files to the examples of clients, and to batches."""
