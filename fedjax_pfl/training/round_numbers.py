"""What a line of metrics.jsonl says of the rounds of one compiled call."""

import math
from typing import Any

import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import FINITE, HAS_SENT, JOINED, SERVER_FINITE
from fedjax_pfl.training import divergence

Numbers = dict[str, Any]  # of a line
Metrics = dict[str, np.ndarray]  # of a call: {name: [T, C]}
WHO = FINITE, HAS_SENT, JOINED, SERVER_FINITE  # metrics that are no numbers


def mean_metrics(metrics: Metrics, counts: np.ndarray) -> dict[str, float]:
  """Return the means over those who trained and sent [T, C].

  `counts` [T, C] are examples. NaN where nobody who trained sent anything;
  where no client trained, all count: their means are 0.
  """
  trained = counts > 0
  used = trained & metrics[HAS_SENT] if trained.any() else ~trained
  return {
    name: float(np.mean(values[used])) if used.any() else math.nan
    for name, values in metrics.items()
    if name not in WHO
  }


def num_images(
  num_steps: np.ndarray, counts: np.ndarray, batch_size: int
) -> float:
  """Return the images in so many steps [T, C].

    images = e n + r B,   steps = e ceil(n / B) + r

  The last batch of an epoch may be smaller; r steps end before it.
  """
  batches = np.maximum(-(-counts // batch_size), 1)
  epochs, more = np.divmod(num_steps, batches)
  return float(np.sum(epochs * counts + more * batch_size))


def excluded_clients(
  metrics: Metrics, cohorts: np.ndarray, done: int, is_private: bool
) -> Numbers:
  """Return and log who was excluded; of a private run how many, if any."""
  if is_private:
    number = int((~metrics[FINITE]).sum())
    if number:
      progress.log(
        f'Up to round {done + len(cohorts)}: {number} changes with NaN or '
        'infinity count as 0.'
      )
    return {'excluded': number} if number else {}
  pairs = []
  for row, finite in enumerate(metrics[FINITE]):
    if ids := cohorts[row][~finite].tolist():
      number = done + row + 1
      pairs += [[number, client] for client in ids]
      progress.log(
        f'Round {number}: excluded{divergence.name_clients(ids)}, where the '
        'loss, the state or the upload is NaN or infinite.'
      )
  numbers = {'excluded': len(pairs)}
  return {**numbers, 'excluded_clients': pairs} if pairs else numbers
