"""The files of a run: directory, lock, checkpoints, models, scores, logs."""
