"""What a run leaves on the disk, and the file of all results."""
