"""Which clients come later: drawn by the seed, and nothing else moves."""

import numpy as np
from small_runs import make_settings

from fedjax_pfl.data.unseen_clients import order_clients
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build_data import (
  Division,
  build_data,
  divide,
  identify,
  load_images,
)

K, U = 10, 3


def rows_of(clients):
  return [tuple(rows.tolist()) for rows in clients]


def division_of(**changes):
  settings = parse_config(make_settings(num_clients=K, **changes))
  dataset = load_images(settings, lambda text: None)
  return dataset, divide(settings, dataset)


def test_those_who_take_part_come_first():
  order = order_clients(K, U, seed=4)
  assert sorted(order) == list(range(K))
  seen, unseen = order[:-U].tolist(), order[-U:].tolist()
  assert seen == sorted(seen) and unseen == sorted(unseen)
  assert unseen != list(range(K - U, K))
  assert order.tolist() == order_clients(K, U, seed=4).tolist()
  assert order.tolist() != order_clients(K, U, seed=5).tolist()


def test_every_client_is_drawn_equally_often():
  draws = [order_clients(K, U, seed)[-U:] for seed in range(1000)]
  counts = np.bincount(np.concatenate(draws), minlength=K)
  assert abs(counts - 1000 * U / K).max() < 4 * np.sqrt(1000 * 0.3 * 0.7)


def test_the_partition_is_that_without_unseen_clients():
  """Each client is in one part, with the examples that it has anyway."""
  _, whole = division_of(seed=3)
  _, division = division_of(seed=3, unseen_clients=U)
  order = order_clients(K, U, seed=3)
  for seen, unseen, both in (
    (division.train, division.unseen_train, whole.train),
    (division.test, division.unseen_test, whole.test),
  ):
    assert len(seen) == K - U and len(unseen) == U
    assert rows_of([*seen, *unseen]) == rows_of([both[k] for k in order])
  assert whole[2:] == division[2:3] + (None, None)


def test_unseen_clients_are_in_no_choice():
  """They hold out as much as others, and nothing is chosen on it."""
  _, division = division_of(unseen_clients=U, validation_fraction=0.3)
  _, without = division_of(unseen_clients=U)
  assert len(division.validation) == K - U
  for kept, all_rows in zip(
    division.unseen_train, without.unseen_train, strict=True
  ):
    assert set(kept) < set(all_rows)


def test_the_fingerprint_tells_who_comes_later():
  """A model that has seen them cannot pass for one that has not."""
  dataset, whole = division_of()
  train, test = whole[:2]
  found = {identify(dataset, whole)}
  for number in (1, 2):  # the last ones: the order is that of `whole`
    place = K - number
    parts = train[:place], test[:place], None, train[place:], test[place:]
    found.add(identify(dataset, Division(*parts)))
  assert len(found) == 3


def test_the_log_names_all_parts():
  lines = []
  settings = parse_config(make_settings(num_clients=K, unseen_clients=U))
  data = build_data(settings, lines.append)
  assert len(data.train.count) == len(data.test.count) == K - U
  assert len(data.unseen.train.count) == len(data.unseen.test.count) == U
  assert data.unseen.train.x is data.train.x
  assert any('training of unseen clients: 3 clients' in line for line in lines)
