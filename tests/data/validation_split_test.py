"""Which training examples are kept for choosing."""

import numpy as np
import pytest
from helpers import refused

from fedjax_pfl.data.validation_split import hold_out, validation_sizes

CLIENTS = [
  np.arange(7, 27)[::-1],
  np.arange(5),
  np.array([40]),
  np.array([], int),
  np.array([60, 50]),
]


@pytest.mark.parametrize(
  ('fraction', 'sizes'),
  [
    # Of 0, 1, 2, 3, 5, 14, 15 and 25 examples.
    (0.1, [0, 0, 1, 1, 1, 1, 2, 3]),  # 2.5 is rounded up
    (0.3, [0, 0, 1, 1, 2, 4, 5, 8]),
    (0.5, [0, 0, 1, 2, 3, 7, 8, 13]),
  ],
)
def test_how_many_examples_a_client_keeps(fraction, sizes):
  counts = np.array([0, 1, 2, 3, 5, 14, 15, 25])
  assert validation_sizes(counts, fraction).tolist() == sizes


def test_every_row_is_in_one_part_and_in_its_order():
  train, validation = hold_out(CLIENTS, 0.2, seed=3)
  assert [len(rows) for rows in train] == [16, 4, 1, 0, 1]
  assert [len(rows) for rows in validation] == [4, 1, 0, 0, 1]
  for own, kept, held in zip(CLIENTS, train, validation, strict=True):
    order = own.tolist()
    assert sorted([*kept, *held], key=order.index) == order
    for part in (kept, held):
      assert sorted(part, key=order.index) == part.tolist()


def test_the_seed_decides_and_nothing_else():
  def held(seed):
    return [rows.tolist() for rows in hold_out(CLIENTS, 0.2, seed)[1]]

  assert held(0) == held(0) != held(1)


def test_a_share_that_leaves_nothing_to_train_on():
  message = refused(lambda: hold_out(CLIENTS, 0.8, 0))
  assert (
    "validation_fraction: got '0.8: it takes all 2 training examples of client "
    "4 (1 of 5 clients)', expected a share that leaves each client an example"
  ) in message


def test_clients_that_have_nothing_to_spare():
  message = refused(lambda: hold_out(CLIENTS[2:4], 0.1, 0))
  assert 'expected a client with at least two' in message
