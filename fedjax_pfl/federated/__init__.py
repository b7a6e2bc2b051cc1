"""One round over many clients: the cohort, chunks, devices, the host."""
