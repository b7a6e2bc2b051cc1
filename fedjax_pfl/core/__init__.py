"""What all rooms use: types, trees, losses, errors, the records."""
