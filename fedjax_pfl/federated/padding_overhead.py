"""Steps that clients side by side wait for one another.

A chunk runs as many steps as its longest client has. The cohort is sorted by
size, so that a chunk holds clients of like size, and each chunk stops when its
own longest client does:

  wasted = 1 - sum_i s_i / sum over chunks of (clients x longest s)

A partial last batch is a step like any other here.
"""

import numpy as np

ALLOWED = 0.1  # of all steps, when the chunk may be chosen
COHORTS = 20  # that are drawn to know what a cohort wastes


def wasted_steps(counts: np.ndarray, chunk: int, batch_size: int) -> float:
  """Return the share of the steps of this cohort that nobody needs.

  >>> wasted_steps(np.array([10, 20, 40]), chunk=3, batch_size=10)
  0.41666666666666663
  """
  steps = np.sort(-(-np.asarray(counts) // batch_size))
  starts = np.arange(0, len(steps), chunk)
  chunks = np.split(steps, starts[1:])
  run = sum(len(one) * int(one[-1]) for one in chunks)
  return 1 - int(steps.sum()) / run if run else 0.0


def expected_waste(
  counts: np.ndarray, size: int, chunk: int, batch_size: int
) -> float:
  """Return the mean over cohorts of this size; one is all clients."""
  return float(
    np.mean(
      [
        wasted_steps(cohort, chunk, batch_size)
        for cohort in _cohorts(np.asarray(counts), size)
      ]
    )
  )


def widest_chunk(counts: np.ndarray, size: int, batch_size: int) -> int:
  """Return the largest chunk that wastes less than a tenth of all steps."""
  cohorts = _cohorts(np.asarray(counts), size)
  for chunk in range(size, 1, -1):
    waste = [wasted_steps(cohort, chunk, batch_size) for cohort in cohorts]
    if np.mean(waste) < ALLOWED:
      return chunk
  return 1


def _cohorts(counts: np.ndarray, size: int) -> list[np.ndarray]:
  if size >= len(counts):
    return [counts]
  rng = np.random.default_rng(0)
  return [rng.choice(counts, size, replace=False) for _ in range(COHORTS)]
