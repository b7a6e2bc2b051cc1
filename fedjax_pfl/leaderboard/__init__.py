"""All methods by one protocol: what to train, the choice, and the verdicts."""
