"""Random proportions with a cap, and a least size: the rule of NIID-Bench.

  p_c ~ Dir(beta 1_K)    for c = 1 .. Y, one by one;
  p_c[k] = 0 where |D_k| >= P / K so far;  p_c /= sum p_c

Rows are cut at floor(|c| cumsum(p_c)), and all classes are drawn again until
the smallest client has `dirichlet_min_size` examples. The rows for training are
bit by bit those of that code for the same seed: NumPy's legacy generator
continues from draw to draw, and shuffles every client's rows at the end. That
code may never end; here BadInput is raised after TRIES draws. The test set is
cut by the resulting shares of training; a class without training examples is
divided equally.
"""

import functools
from typing import Annotated, NamedTuple

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import count
from fedjax_pfl.data.partitions import Deals, Indices, Rng, Sizes, legacy_rng
from fedjax_pfl.data.partitions.dirichlet import (
  Beta,
  concentration,
  deal_shares,
)

TRIES = 10_000


class Plan(NamedTuple):
  """A division of the examples, and the draws that made it."""

  tries: int
  orders: Indices  # of every class: its rows, numbered within the class
  borders: list[np.ndarray]  # of every class: where [K-1] these are cut
  counts: np.ndarray  # [Y, K] training examples
  shuffles: Indices  # of every client: the final order of its rows


def dirichlet_capped(
  sizes: Sizes,
  rng: Rng,
  *,
  dirichlet_beta: Beta = 1.0,
  dirichlet_min_size: Annotated[
    int,
    count('training examples of the smallest client'),
    'images of the smallest client',
  ] = 10,
) -> Deals:
  """Return how rows are dealt: proportions with a cap, and a least size."""
  plan = draw_plan(sizes, dirichlet_beta, dirichlet_min_size)
  counts = plan.counts + (plan.counts.sum(1, keepdims=True) == 0)
  shares = counts / counts.sum(1, keepdims=True)

  def replay(labels: np.ndarray, rng: Rng) -> Indices:
    parts = [
      np.split(np.flatnonzero(labels == label)[plan.orders[label]], borders)
      for label, borders in enumerate(plan.borders)
    ]
    return [
      np.concatenate(pieces)[shuffle]
      for *pieces, shuffle in zip(*parts, plan.shuffles, strict=True)
    ]

  return replay, functools.partial(deal_shares, shares)


def draw_plan(sizes: Sizes, beta: float, least: int) -> Plan:
  """Return the first draw that gives `least` examples to every client."""
  alpha = concentration(beta, sizes.num_clients)
  most, why = sizes.num_train // sizes.num_clients, 'the mean of all'
  if least <= most:
    legacy, most = legacy_rng(sizes.seed), 0
    for number in range(1, TRIES + 1):
      orders, borders, counts = _draw_once(alpha, sizes, legacy)
      if len(borders) < sizes.num_classes:
        continue
      held = np.sum(counts, 0)
      if held.min() >= least:
        shuffles = [legacy.permutation(size) for size in held]
        return Plan(number, orders, borders, np.array(counts), shuffles)
      most = max(most, int(held.min()))
    why = (
      f'the most that the smallest had in {TRIES:,} draws with beta {beta} and '
      f'seed {sizes.seed}'
    )
  raise bad_input(
    'dirichlet_min_size',
    got=least,
    expected=f'at most {most}, {why}: {sizes.num_clients} clients share '
    f'{sizes.num_train} examples',
  )


def cut_class(
  shares: np.ndarray, held: np.ndarray, num_rows: int, mean: float
) -> np.ndarray | None:
  """Return where [K-1] the rows of a class are cut: floor(n cumsum(p)).

  Clients that hold `mean` examples or more get none. None where nothing is
  left to divide by: all who are not full have proportion 0.
  """
  shares = shares * (held < mean)
  total = shares.sum()
  if not total > 0:  # not a number, where beta is near 0
    return None
  return (np.cumsum(shares / total) * num_rows).astype(int)[:-1]


def _draw_once(
  alpha: np.ndarray, sizes: Sizes, legacy: np.random.RandomState
) -> tuple[Indices, list[np.ndarray], list[np.ndarray]]:
  """Return orders, borders and counts of the classes, until one has none."""
  held = np.zeros(sizes.num_clients, int)
  mean = sizes.num_train / sizes.num_clients
  orders, borders, counts = [], [], []
  for num_rows in sizes.class_counts:
    orders.append(legacy.permutation(num_rows))
    cuts = cut_class(legacy.dirichlet(alpha), held, num_rows, mean)
    if cuts is None:
      break
    borders.append(cuts)
    counts.append(np.diff(cuts, prepend=0, append=num_rows))
    held += counts[-1]
  return orders, borders, counts
