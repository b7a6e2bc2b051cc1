"""Methods compared by one protocol: what to train, the choice, the verdicts."""
