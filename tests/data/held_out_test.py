"""Halves of tests, examples for choosing, and clients who come later."""

import jax
import numpy as np
from helpers import pad
from small_runs import make_settings

from fedjax_pfl.data.client_data import from_arrays
from fedjax_pfl.data.dealing import divide, load_images
from fedjax_pfl.data.held_out import halves, hold_out, order_clients
from fedjax_pfl.settings import parse_config

SIZES = (5, 4, 1, 0, 2)
K, U = 10, 3
CLIENTS = [
  np.arange(7, 27)[::-1],
  np.arange(5),
  np.array([40]),
  np.array([], int),
  np.array([60, 50]),
]


def test_halves_of_every_client():
  """Of 5, 4, 1, 0 and 2 examples, the first the fullest."""
  rows = [10 * i + np.arange(n, dtype=float) for i, n in enumerate(SIZES)]
  labels = [np.zeros(n, int) for n in SIZES]
  whole = from_arrays([x[:, None] for x in rows], labels)
  for data in (whole, pad(whole, 9)):
    data = jax.tree.map(np.asarray, data)
    got = [
      [
        half.x[half.index[i, : half.count[i]], 0].tolist()
        for half in halves(data)
      ]
      for i in range(len(SIZES))
    ]
    assert got == [
      [[1, 3], [0, 2, 4]],
      [[11, 13], [10, 12]],
      [[], [20]],
      [[], []],
      [[41], [40]],
    ]


def test_every_row_is_in_one_part_and_in_its_order():
  train, validation = hold_out(CLIENTS, 0.2, seed=3)
  assert [len(rows) for rows in train] == [16, 4, 1, 0, 1]
  assert [len(rows) for rows in validation] == [4, 1, 0, 0, 1]
  for own, kept, held in zip(CLIENTS, train, validation, strict=True):
    order = own.tolist()
    assert sorted([*kept, *held], key=order.index) == order
    for part in (kept, held):
      assert sorted(part, key=order.index) == part.tolist()


def rows_of(clients):
  return [tuple(rows.tolist()) for rows in clients]


def division_of(**changes):
  settings = parse_config(make_settings(num_clients=K, **changes))
  dataset = load_images(settings.data, False, lambda text: None)
  return dataset, divide(settings.data, settings.seed, dataset)


def test_those_who_take_part_come_first():
  order = order_clients(K, U, seed=4)
  assert sorted(order) == list(range(K))
  seen, unseen = order[:-U].tolist(), order[-U:].tolist()
  assert seen == sorted(seen) and unseen == sorted(unseen)
  assert unseen != list(range(K - U, K))
  assert order.tolist() == order_clients(K, U, seed=4).tolist()
  assert order.tolist() != order_clients(K, U, seed=5).tolist()


def test_the_partition_is_that_without_unseen_clients():
  """Each client is in one part, with the examples that it has anyway."""
  _, whole = division_of(seed=3)
  _, division = division_of(seed=3, unseen_clients=U)
  order = order_clients(K, U, seed=3)
  for seen, unseen, both in (
    (division[part], division[f'unseen_{part}'], whole[part])
    for part in ('train', 'test')
  ):
    assert len(seen) == K - U and len(unseen) == U
    assert rows_of([*seen, *unseen]) == rows_of([both[k] for k in order])
  assert {*whole} == {'train', 'test'}
  assert {*division} == {*whole, 'unseen_train', 'unseen_test'}


def test_unseen_clients_are_in_no_choice():
  """They hold out as much as others, and nothing is chosen on it."""
  _, division = division_of(unseen_clients=U, validation_fraction=0.3)
  _, without = division_of(unseen_clients=U)
  assert len(division['validation']) == K - U
  for kept, all_rows in zip(
    division['unseen_train'], without['unseen_train'], strict=True
  ):
    assert set(kept) < set(all_rows)
