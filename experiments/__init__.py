"""Commands, and the laboratory behind some: it imports the package alone."""
