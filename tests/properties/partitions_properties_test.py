"""Properties of every partition, for any labels and settings.

No row is dealt twice; sizes, classes and the number of rows are those that the
partition documents.
"""

import math

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data.partition import PARTITIONS, partition


def equal_blocks(draw, num_clients, num_classes, size):
  """Draw shards of which every class has equally many."""
  step = num_classes // math.gcd(num_clients, num_classes)
  return {'shards_per_client': step * draw(st.integers(1, 3))}


def unbalanced(draw, num_clients, num_classes, size):
  divisors = [d for d in range(1, num_clients + 1) if num_clients % d == 0]
  return {
    **equal_blocks(draw, num_clients // 2, num_classes, size),
    'group_size': draw(st.sampled_from(divisors)),
    'size_step': draw(st.floats(0, 2 * size / num_clients**2)),
  }


def semantic(draw, num_clients, num_classes, size):
  """Draw sizes that come to so many clients now and then."""
  clusters = draw(st.integers(1, min(num_classes, num_clients, 3)))
  mean = size // (num_clients + clusters)
  return {
    'class_clusters': clusters,
    'min_client_size': mean - mean // 3,
    'max_client_size': mean + mean // 3 + 1,
  }


BETAS = st.floats(1e-3, 1e3)


def nothing(draw, num_clients, num_classes, size):
  return {}


# Settings that a way may have, given clients, classes and examples.
SETTINGS = {
  'shards': equal_blocks,
  'pathological': equal_blocks,
  'pathological_uneven': lambda draw, clients, classes, size: {
    'classes_per_client': classes // math.gcd(clients, classes)
  },
  'dirichlet': lambda draw, *_: {'dirichlet_beta': draw(BETAS)},
  'dirichlet_capped': lambda draw, clients, classes, size: {
    'dirichlet_beta': draw(st.floats(0.5, 10)),
    'dirichlet_min_size': draw(st.integers(1, max(1, size // clients // 2))),
  },
  'classes': lambda draw, clients, classes, size: {
    'classes_per_client': draw(st.integers(1, classes))
  },
  'unbalanced': unbalanced,
  'semantic': semantic,
}
every_way = pytest.mark.parametrize('name', PARTITIONS)
COMPLETE = {*SETTINGS, 'natural'} - {'unbalanced', 'semantic'}


def check_clients(
  name,
  labels,
  indices,
  num_classes,
  shards_per_client=0,
  dirichlet_min_size=0,
  **settings,
):
  """Check what the docstring of a partition states about its clients."""
  sizes = np.array([len(rows) for rows in indices])
  held = np.array(
    [np.bincount(labels[rows], minlength=num_classes) for rows in indices]
  )  # [K, Y]
  there = np.bincount(labels, minlength=num_classes)
  if name == 'iid':
    assert (sizes == len(labels) // len(indices)).all()
  if shards_per_client:
    assert ((held > 0).sum(1) <= shards_per_client).all()
  if name in ('shards', 'pathological'):
    blocks = shards_per_client * len(indices) // num_classes  # of each class
    assert (held <= shards_per_client * -(-there // blocks)).all()
  if name == 'unbalanced':
    group = np.arange(len(sizes)) // settings['group_size']
    more = settings['size_step'] * (group - group.mean())
    assert (sizes <= len(labels) / len(sizes) + more + 1e-6).all()
  if name == 'pathological_uneven':
    each = settings['classes_per_client']
    assert ((held > 0).sum(1) == each).all()
    assert ((held > 0).sum(0) == each * len(sizes) // num_classes).all()
    assert (held.sum(0) == there).all()
  if name == 'classes':
    assert ((held > 0).sum(1) <= settings['classes_per_client']).all()
    for own, size in zip(held.T, there, strict=True):
      parts = own[own > 0]
      assert size == parts.sum() and (size == 0 or np.ptp(parts) <= 1)
  if name == 'natural':
    for number, rows in enumerate(indices):
      assert (settings['clients'][0][rows] == number).all()
      assert (np.diff(rows) > 0).all()
  assert sizes.min() >= dirichlet_min_size
  if name == 'semantic':
    assert settings['min_client_size'] <= sizes.min()
    assert sizes.max() < settings['max_client_size']


@st.composite
def arguments(draw, name):
  """Draw what `partition` is called with."""
  num_classes = draw(st.integers(1, 6))
  num_clients = draw(st.integers(1, 12))
  if name == 'unbalanced':
    num_clients = 2 * draw(st.integers(1, 5))
  rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
  weights = rng.dirichlet(np.full(num_classes, draw(st.floats(0.5, 50))))
  labels = [
    rng.choice(num_classes, draw(st.integers(least, 400)), p=weights)
    for least in (60, 12)
  ]
  return labels, {
    'num_clients': num_clients,
    'num_classes': num_classes,
    'seed': draw(st.integers(0, 2**32 - 1)),
    # For 'natural'; at least one for training, in any order.
    'clients': tuple(
      rng.permutation(np.arange(len(y)) % num_clients) for y in labels
    ),
    **SETTINGS.get(name, nothing)(
      draw, num_clients, num_classes, len(labels[0])
    ),
  }


def divide(name, labels, **settings):
  """Return the partition; reject settings that raise BadInput."""
  try:
    return partition(name, *labels, **settings)
  except BadInput:  # such as sizes that never come to so many clients
    reject()


@pytest.fixture(autouse=True, scope='module')
def few_tries():
  """Draw sizes a few times only: some numbers of clients never result."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr('fedjax_pfl.data.partitions.semantic.TRIES', 50)
    patch.setattr('fedjax_pfl.data.partitions.dirichlet_capped.TRIES', 50)
    yield


@every_way
@given(data=st.data())
def test_rows_are_dealt_once_and_clients_are_as_documented(name, data):
  labels, settings = data.draw(arguments(name))
  both = divide(name, labels, **settings)
  for y, indices in zip(labels, both, strict=True):
    assert len(indices) == settings['num_clients']
    assert all(rows.dtype == np.int64 for rows in indices)
    dealt = np.bincount(np.concatenate(indices), minlength=len(y))
    assert len(dealt) == len(y) and dealt.max() <= 1
    assert dealt.all() or name not in COMPLETE
  check_clients(name, labels[0], both[0], **settings)


@every_way
@given(data=st.data(), share=st.floats(0.01, 0.99))
def test_rows_for_testing_are_kept_from_training(name, data, share):
  """With the same seed, a part of the rows that a client would train on."""
  labels, settings = data.draw(arguments(name))
  undivided, _ = divide(name, labels, **settings)
  parts = partition(
    name, *labels, test_partition='split', test_fraction=share, **settings
  )
  for own, kept, rows in zip(*parts, undivided, strict=True):
    both = np.concatenate([own, kept])
    np.testing.assert_array_equal(np.sort(both), np.sort(rows))
    assert len(own) <= (1 - share) * len(rows) + 1e-6 < len(own) + 1.001
