"""From the archives that the authors of image sets publish to arrays."""
