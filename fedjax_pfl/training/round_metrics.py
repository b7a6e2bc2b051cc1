"""The numbers of a line of metrics.jsonl about the rounds of a call."""

from typing import Any

import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.federated.client_dropout import HAS_SENT
from fedjax_pfl.federated.communication import Communication
from fedjax_pfl.training import divergence
from fedjax_pfl.training.drivers.driver import Call, Result

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
  used = result.took_part & metrics.pop(HAS_SENT, True)
  return {
    **mean_metrics(metrics, (counts > 0) & used),
    'images_per_second': images / seconds,
  }


def num_images(
  num_steps: np.ndarray, counts: np.ndarray, batch_size: int
) -> float:
  """Return the images in so many steps [T, C]; the last batch may be smaller.

  images = steps n / ceil(n / B)
  """
  batches = np.maximum(-(-counts // batch_size), 1)
  return float(np.sum(num_steps * counts / batches))


def mean_metrics(
  metrics: dict[str, np.ndarray], trained: np.ndarray
) -> dict[str, float]:
  """Return the means of the scalars over the rounds and clients that trained.

  `trained` is [T, C]. Where no client trained, all count: their means are 0.
  """
  used = trained if trained.any() else ~trained
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
  that fails has downloaded, and uploads nothing.
  """
  cohorts = call.cohorts
  num_uploads = cohorts.size
  if HAS_SENT in result.metrics:
    num_uploads = int(result.metrics[HAS_SENT].sum())
  initial = call.data.count.shape[0] * sizes.initial if starts_stage else 0
  return {
    'bytes_down': cohorts.size * sizes.down + initial,
    'bytes_up': num_uploads * sizes.up,
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
