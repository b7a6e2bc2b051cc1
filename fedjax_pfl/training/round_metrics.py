"""The numbers of a line of metrics.jsonl about the rounds of a call."""

import math
from typing import Any

import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.federated.communication import Communication
from fedjax_pfl.federated.failures import FINITE, HAS_SENT, SERVER_FINITE
from fedjax_pfl.training import divergence

Numbers = dict[str, Any]
Metrics = dict[str, np.ndarray]  # of a call: {name: [T, C]}


def training_numbers(
  metrics: Metrics, counts: np.ndarray, batch_size: int, seconds: float
) -> dict[str, float]:
  """Return means over the rounds of a call, and images per second.

  `counts` [T, C] are examples. Clients that sent nothing are in no mean.
  """
  images = num_images(metrics['num_steps'], counts, batch_size)
  flags = FINITE, SERVER_FINITE, HAS_SENT
  shown = {name: one for name, one in metrics.items() if name not in flags}
  return {
    **mean_metrics(shown, counts > 0, has_sent(metrics)),
    'images_per_second': images / seconds,
  }


def has_sent(metrics: Metrics) -> np.ndarray:
  """Return which clients sent something: [T, C]; all, if none may fail."""
  return metrics.get(HAS_SENT, np.ones_like(metrics[FINITE]))


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


def mean_metrics(
  metrics: dict[str, np.ndarray], trained: np.ndarray, sent: np.ndarray
) -> dict[str, float]:
  """Return the means of the scalars over those who trained and sent [T, C].

  NaN where nobody who trained sent anything; where no client trained, all
  count: their means are 0.
  """
  used = trained & sent if trained.any() else ~trained
  if not used.any():
    return {name: math.nan for name, one in metrics.items() if one.ndim == 2}
  return {
    name: float(np.mean(values[used]))
    for name, values in metrics.items()
    if values.ndim == 2  # [T, C]
  }


def message_bytes(
  metrics: Metrics, sizes: Communication, initial: int = 0
) -> dict[str, int]:
  """Return the bytes that cross the network in the rounds of a call.

  `initial` are those of a broadcast to all clients, which goes with the first
  rounds of a stage. A client that fails, or is excluded, has downloaded, and
  uploads nothing.
  """
  sent = has_sent(metrics)
  return {
    'bytes_down': sent.size * sizes.down + initial,
    'bytes_up': int(sent.sum()) * sizes.up,
  }


def dropped_clients(metrics: Metrics) -> Numbers:
  """Return how many clients of the cohorts failed, if any may."""
  if HAS_SENT not in metrics:
    return {}
  return {'dropped': int((metrics[FINITE] & ~metrics[HAS_SENT]).sum())}


def excluded_clients(
  metrics: Metrics, cohorts: np.ndarray, done: int
) -> Numbers:
  """Return and log who was excluded: how many, and pairs [round, client]."""
  diverged = ~metrics[FINITE]
  numbers: Numbers = {'excluded': int(diverged.sum())}
  pairs = []
  for number, (cohort, own) in enumerate(
    zip(cohorts, diverged, strict=True), done + 1
  ):
    ids = divergence.as_ids(cohort[own])
    pairs += [[number, client] for client in ids]
    if ids:
      progress.log(
        f'Round {number}: excluded{divergence.name_clients(ids)}, where the '
        'loss, the state or the upload is NaN or infinite.'
      )
  return {**numbers, 'excluded_clients': pairs} if pairs else numbers
