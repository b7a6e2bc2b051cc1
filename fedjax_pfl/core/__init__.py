"""The words that all rooms speak: types, trees, losses, errors, the records."""
