"""The numbers of a line of metrics.jsonl about the rounds of a call."""

import math
from typing import Any

import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.federated.client_dropout import HAS_SENT
from fedjax_pfl.federated.communication import Communication
from fedjax_pfl.training import divergence
from fedjax_pfl.training.program import Call, Result

Numbers = dict[str, Any]


def training_numbers(
  call: Call, result: Result, batch_size: int, seconds: float
) -> dict[str, float]:
  """Return means over the rounds of a call, and images per second.

  Clients that took no part, or sent nothing, are in no mean.
  """
  counts = np.asarray(call.data.count)[np.asarray(call.cohorts)]  # [T, C]
  images = num_images(result.metrics['num_steps'], counts, batch_size)
  metrics = dict(result.metrics)
  sent = result.took_part & metrics.pop(HAS_SENT, True)
  return {
    **mean_metrics(metrics, counts > 0, sent),
    'images_per_second': images / seconds,
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
  sizes: Communication, call: Call, result: Result, *, starts_stage: bool
) -> dict[str, int]:
  """Return the bytes that cross the network in the rounds of a call.

  With the first rounds of a stage goes the broadcast to all clients. A client
  that fails, or is excluded, has downloaded, and uploads nothing.
  """
  cohorts = call.cohorts
  sent = result.took_part & result.metrics.get(HAS_SENT, True)
  initial = call.data.count.shape[0] * sizes.initial if starts_stage else 0
  return {
    'bytes_down': cohorts.size * sizes.down + initial,
    'bytes_up': int(sent.sum()) * sizes.up,
  }


def dropped_clients(result: Result) -> Numbers:
  """Return how many clients of the cohorts sent nothing, if any may fail."""
  if HAS_SENT not in result.metrics:
    return {}
  failed = result.took_part & ~result.metrics[HAS_SENT]
  return {'dropped': int(failed.sum())}


def excluded_clients(call: Call, took_part: np.ndarray, done: int) -> Numbers:
  """Return and log who was excluded: how many, and pairs [round, client]."""
  numbers: Numbers = {'excluded': int((~took_part).sum())}
  pairs = []
  for number, (cohort, stays) in enumerate(
    zip(np.asarray(call.cohorts), took_part, strict=True), done + 1
  ):
    ids = divergence.as_ids(cohort[~stays])
    pairs += [[number, client] for client in ids]
    if ids:
      progress.log(
        f'Round {number}: excluded{divergence.name_clients(ids)}, where the '
        'loss, the state or the upload is NaN or infinite.'
      )
  return {**numbers, 'excluded_clients': pairs} if pairs else numbers
