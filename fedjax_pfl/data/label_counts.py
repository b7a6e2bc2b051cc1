"""Count the examples of every class that clients hold, or their tokens."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.types import Array, ClientData
from fedjax_pfl.data.batching import of_labels


def label_counts(data: ClientData, num_classes: int) -> Array:
  """Return the label counts of ONE client: [Y] int."""
  real = jnp.arange(data.index.shape[0]) < data.count  # [N]
  y, real = of_labels(data.y[data.index], real)
  none = jnp.zeros(num_classes, jnp.int32)
  return none.at[y].add(real.astype(jnp.int32))


def label_counts_of_clients(data: ClientData, num_classes: int) -> np.ndarray:
  """Return the label counts of every client, computed on the host: [K, Y]."""
  index, count = np.asarray(data.index), np.asarray(data.count)
  client, column = np.nonzero(np.arange(index.shape[1]) < count[:, None])
  label = np.asarray(data.y)[index[client, column]]
  if label.ndim == 2:  # of tokens, of which some have none
    client = np.repeat(client, label.shape[1])[label.ravel() >= 0]
    label = label[label >= 0]
  size = len(count) * num_classes
  flat = np.bincount(client * num_classes + label, minlength=size)
  return flat.reshape(len(count), num_classes)


def label_shares(counts: Any) -> np.ndarray:
  """Return the shares [K, Y] of counts [K, Y]; zeros for an empty client."""
  counts = np.asarray(counts, np.float64)
  return counts / np.maximum(counts.sum(1, keepdims=True), 1)
