"""A client's own classes, and its accuracy on those and on all others.

  acc_ID  = 100 sum_{c in O} correct_c / sum_{c in O} count_c
  acc_OOD = the same for c not in O,     O = the client's training classes

(FedBABU, Table 20 and Figure 13.)
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.label_counts import label_counts_of_clients


class Split(NamedTuple):
  """Accuracies in percent; NaN where there is no such test example."""

  own: np.ndarray  # [...] on the client's own classes: ID
  other: np.ndarray  # [...] on all other classes: OOD


TITLES = Split('classes of the client', 'all other classes')


def owned_classes(data: ClientData, num_classes: int) -> np.ndarray:
  """Return whether client k has a training example of class c: [K, Y]."""
  return label_counts_of_clients(data, num_classes) > 0


def split_accuracy(
  correct: np.ndarray, count: np.ndarray, owned: np.ndarray
) -> Split:
  """Return the accuracies on owned and on other classes: [..., Y] -> [...].

  The three arrays need only broadcast: one count may serve many clients.
  """

  def accuracy(chosen):
    hits = np.sum(np.where(chosen, correct, 0), -1)
    total = np.sum(np.where(chosen, count, 0), -1)
    return np.where(total > 0, 100.0 * hits / np.maximum(total, 1), np.nan)

  owned = np.asarray(owned, bool)
  return Split(accuracy(owned), accuracy(~owned))
