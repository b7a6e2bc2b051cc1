"""Cluster clients by the labels that they hold: K-means on label shares.

  p_i = (n_{i,0}, ..., n_{i,Y-1}) / n_i            in float64

All of it is numpy and scikit-learn on the host, once in a run.
"""

import warnings

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import Rule

NUM_STARTS = 10  # of K-means, of which the best is used
CAPPED_ITERATIONS = 100  # as in the public code: no test of convergence


def check_clusters(shares: np.ndarray, number: int) -> None:
  """Refuse more clusters than there are different clients."""
  shares = shares[shares.any(1)]  # of clients with examples
  different = len(np.unique(shares, axis=0))
  Rule(
    lambda value: 1 <= value <= different,
    f'1 to {different}: {len(shares)} clients have {different} different label '
    'distributions, and a cluster needs one',
    'more clusters than clients, or a partition with few kinds of them',
  ).check('hp.clusters', number)


def cluster(
  shares: np.ndarray, number: int, seed: int, cap_factor: float | None = None
) -> np.ndarray:
  """Return the cluster [K] of every row: the best of 10 K-means.

  With a cap factor, no cluster has more than floor(factor K / M) members: see
  `capped`. Rows of zeros, clients without examples, are in no mean and get 0.
  """
  shares = np.asarray(shares, np.float64)
  if not (held := shares.any(1)).all():
    labels = np.zeros(len(shares), np.int32)
    if held.any():
      labels[held] = cluster(shares[held], number, seed, cap_factor)
    return labels
  model = k_means(shares, number, seed)
  if cap_factor is None:
    return model.labels_.astype(np.int32)
  cap = check_cap(len(shares), number, cap_factor)
  rng = np.random.default_rng(seed)
  return capped(shares, model.cluster_centers_, cap, rng)


def k_means(shares: np.ndarray, number: int, seed: int):
  """Return scikit-learn's fitted KMeans."""
  from sklearn.cluster import KMeans
  from sklearn.exceptions import ConvergenceWarning

  with warnings.catch_warnings():
    # Equal rows are refused by `check_clusters`, where they matter.
    warnings.simplefilter('ignore', ConvergenceWarning)
    return KMeans(number, n_init=NUM_STARTS, random_state=seed).fit(shares)


def capped(
  shares: np.ndarray,
  centres: np.ndarray,
  cap: int,
  rng: np.random.Generator,
  iterations: int = CAPPED_ITERATIONS,
) -> np.ndarray:
  """Return the clusters [K] of a K-means in which none exceeds the cap.

  In every iteration: each row goes to the nearest centre; the centre of an
  empty cluster moves to a random row; cluster by cluster, those farthest away
  leave until the cap holds; row by row, they go to the nearest cluster with
  room; centres become means.
  """
  centres = np.array(centres, np.float64)
  for _ in range(iterations):
    distance = np.linalg.norm(shares[:, None] - centres, axis=-1)  # [K, M]
    labels = distance.argmin(1)
    for empty in np.setdiff1d(np.arange(len(centres)), labels):
      centres[empty] = shares[rng.integers(len(shares))]
    labels = _fill(labels, distance, cap)
    for group in np.unique(labels):
      centres[group] = shares[labels == group].mean(0)
  return labels.astype(np.int32)


def _fill(labels: np.ndarray, distance: np.ndarray, cap: int) -> np.ndarray:
  """Return the labels with the rows above the cap in other clusters."""
  for group in range(distance.shape[1]):
    while (labels == group).sum() > cap:
      members = np.flatnonzero(labels == group)
      farthest = members[distance[members, group].argmax()]
      labels[farthest], distance[farthest, group] = -1, np.inf
  for row in np.flatnonzero(labels == -1):
    room = np.bincount(labels[labels >= 0], minlength=distance.shape[1]) < cap
    labels[row] = np.where(room, distance[row], np.inf).argmin()
  return labels


def check_cap(num_clients: int, number: int, factor: float) -> int:
  """Return the cap, floor(factor K / M); refuse one without room for all."""
  cap = int(factor * num_clients / number) if factor > 0 else 0
  if cap * number < num_clients:
    raise bad_input(
      'hp.cap_factor',
      got=factor,
      expected=f'room for all {num_clients} clients in {number} clusters, '
      f'instead of {cap} in each',
      choices=['1.2, as in the paper', 'None: no cap'],
    )
  return cap
