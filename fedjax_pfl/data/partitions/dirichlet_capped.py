"""Random proportions of every class, 0 for clients that are full.

  p_c ~ Dir(beta 1_K)                          for c = 1 .. Y, one by one
  p_c[k] = 0 where |D_k| >= P / K so far;  p_c /= sum p_c
  the shuffled rows of class c are cut at floor(|c| cumsum(p_c))

All classes are drawn again until the smallest client has `dirichlet_min_size`
examples. That is the rule of NIID-Bench, which FedConcat and other papers
divide by. The rows for training are bit by bit those of that code for the same
seed: NumPy's legacy generator continues from draw to draw, and shuffles every
client's rows at the end. That code may never end; here BadInput is raised after
TRIES draws.

The test set is cut by the resulting shares of training. A class without
training examples is divided equally.
"""

from typing import NamedTuple

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.data.partitions import Indices, Rng, Sizes, legacy_generator
from fedjax_pfl.data.partitions.dirichlet import BETA, EQUAL, deal_shares

TRIES = 10_000


class Plan(NamedTuple):
  """What the clients are, and the draws behind it."""

  tries: int
  orders: Indices  # of every class: its rows, numbered within the class
  borders: np.ndarray  # [Y, K-1] where these are cut
  counts: np.ndarray  # [Y, K] training examples
  shuffles: Indices  # of every client: the final order of its rows


class DirichletCapped(NamedTuple):
  """Proportions with a cap, and a least size."""

  dirichlet_beta: float = 1.0
  dirichlet_min_size: int = 10  # training examples of the smallest client

  def draw(self, sizes: Sizes, rng: Rng) -> Plan:
    del rng
    BETA.check('dirichlet_beta', self.dirichlet_beta)
    least = self.dirichlet_min_size
    mean = sizes.num_train // sizes.num_clients
    if least > mean:
      raise _too_large(least, mean, sizes, 'the mean of all')
    legacy, most = legacy_generator(sizes.seed), 0
    for number in range(1, TRIES + 1):
      orders, borders = _draw_once(self.dirichlet_beta, sizes, legacy)
      if len(borders) < sizes.num_classes:
        continue
      counts = np.diff(
        borders, prepend=0, append=sizes.class_counts[:, None], axis=1
      )
      held = counts.sum(0)
      if held.min() >= least:
        shuffles = [_shuffled(size, legacy) for size in held]
        return Plan(number, orders, np.array(borders), counts, shuffles)
      most = max(most, int(held.min()))
    why = (
      f'the most that the smallest had in {TRIES:,} draws with beta '
      f'{self.dirichlet_beta} and seed {sizes.seed}'
    )
    raise _too_large(least, most, sizes, why)

  def replay(self, plan: Plan, labels: np.ndarray) -> Indices:
    parts = [
      np.split(np.flatnonzero(labels == label)[order], borders)
      for label, (order, borders) in enumerate(
        zip(plan.orders, plan.borders, strict=True)
      )
    ]
    return [
      np.concatenate(own)[shuffle]
      for *own, shuffle in zip(*parts, plan.shuffles, strict=True)
    ]

  def deal(self, plan: Plan, labels: np.ndarray, rng: Rng) -> Indices:
    counts = plan.counts + (plan.counts.sum(1, keepdims=True) == 0)
    return deal_shares(counts / counts.sum(1, keepdims=True), labels, rng)


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
  beta: float, sizes: Sizes, legacy: np.random.RandomState
) -> tuple[Indices, list[np.ndarray]]:
  """Return orders and borders of every class; fewer if one has none."""
  alpha = np.full(sizes.num_clients, min(beta, EQUAL))
  held = np.zeros(sizes.num_clients, int)
  mean = sizes.num_train / sizes.num_clients
  orders, borders = [], []
  for num_rows in sizes.class_counts:
    orders.append(_shuffled(num_rows, legacy))
    cuts = cut_class(legacy.dirichlet(alpha), held, num_rows, mean)
    if cuts is None:
      break
    borders.append(cuts)
    held += np.diff(cuts, prepend=0, append=num_rows)
  return orders, borders


def _shuffled(size: int, legacy: np.random.RandomState) -> np.ndarray:
  rows = np.arange(size)
  legacy.shuffle(rows)
  return rows


def _too_large(least: int, most: int, sizes: Sizes, why: str) -> BadInput:
  return bad_input(
    'dirichlet_min_size',
    got=least,
    expected=f'at most {most}, {why}: {sizes.num_clients} clients share '
    f'{sizes.num_train} examples',
    cause='a small beta for so many clients, or fewer examples than before',
  )
