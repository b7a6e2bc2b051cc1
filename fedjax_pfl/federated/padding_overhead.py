"""Padding overhead: steps in which a client of a chunk waits for a larger one.

A chunk runs as many steps as its longest client has. The cohort is sorted by
size, so that a chunk holds clients of about one size, and each chunk stops when
its own longest client does:

  overhead = 1 - sum_i s_i / sum over chunks of (clients x longest s)

A partial last batch is a step like any other here.
"""

import numpy as np

MAX_OVERHEAD = 0.1  # of all steps, for an 'auto' chunk
NUM_COHORTS = 20  # drawn for the expected overhead


def overhead(counts: np.ndarray, chunk: int, batch_size: int) -> float:
  """Return the overhead of a cohort with these numbers of examples [C].

  >>> overhead(np.array([10, 20, 40]), chunk=3, batch_size=10)
  0.41666666666666663
  """
  steps = np.sort(-(-np.asarray(counts) // batch_size))
  starts = np.arange(0, len(steps), chunk)
  chunks = np.split(steps, starts[1:])
  run = sum(len(members) * int(members[-1]) for members in chunks)
  return 1 - int(steps.sum()) / run if run else 0.0


def expected_overhead(
  counts: np.ndarray, cohort_size: int, chunk: int, batch_size: int
) -> float:
  """Return the mean overhead of random cohorts of clients [K]."""
  cohorts = _draw_cohorts(np.asarray(counts), cohort_size)
  return float(np.mean([overhead(own, chunk, batch_size) for own in cohorts]))


def largest_chunk(counts: np.ndarray, cohort_size: int, batch_size: int) -> int:
  """Return the largest chunk whose expected overhead is below MAX_OVERHEAD."""
  cohorts = _draw_cohorts(np.asarray(counts), cohort_size)
  for chunk in range(cohort_size, 1, -1):
    each = [overhead(own, chunk, batch_size) for own in cohorts]
    if np.mean(each) < MAX_OVERHEAD:
      return chunk
  return 1


def _draw_cohorts(counts: np.ndarray, cohort_size: int) -> list[np.ndarray]:
  """Return the counts of random cohorts; of one, if it is all clients."""
  if cohort_size >= len(counts):
    return [counts]
  rng = np.random.default_rng(0)
  return [
    rng.choice(counts, cohort_size, replace=False) for _ in range(NUM_COHORTS)
  ]
