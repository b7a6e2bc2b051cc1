"""Every client of a cohort is dealt to one device of a mesh."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_pfl.federated import dealing

COUNT = jnp.array([7, 1, 0, 4, 9, 5, 3])


@pytest.mark.parametrize(
  'size, devices', [(1, 8), (5, 8), (8, 8), (9, 8), (7, 2), (12, 3), (17, 8)]
)
def test_rows_are_assigned_to_devices_in_turn(size, devices):
  """Every row once; full devices have about the same total of sizes."""
  order = dealing.device_order(size, devices)
  assert sorted(order) == list(range(size))
  share = -(-size // devices)
  parts = [order[first : first + share] for first in range(0, size, share)]
  assert len(parts) <= devices
  totals = [part.sum() for part in parts if len(part) == share]
  assert max(totals) - min(totals) <= size


def test_places_that_are_left_over_are_the_last_and_have_no_examples():
  deal = dealing.deal_in_turn(jnp.array([4, 0, 5, 3, 1]), COUNT, 4)
  assert deal.ids.tolist() == [1, 5, 3, 0, 4, 1, 1, 1]
  assert deal.count.tolist() == [1, 5, 4, 7, 9, 0, 0, 0]
  assert deal.size == 5 and not deal.at_home
  assert deal.ids[deal.position].tolist() == [4, 0, 5, 3, 1]


@pytest.mark.parametrize('devices', [2, 3, 8])
def test_all_clients_stay_with_their_owners(devices):
  ids = jnp.array([6, 0, 2, 4, 5, 1, 3])
  deal = dealing.deal_at_home(ids, COUNT, devices)
  size = dealing.num_places(7, devices)
  owned = np.arange(size).reshape(devices, -1)
  dealt = np.asarray(deal.ids).reshape(devices, -1)
  assert (np.sort(dealt, 1) == owned).all() and deal.at_home
  counts = np.pad(COUNT, (0, size - 7))[dealt]
  assert (deal.count == counts.ravel()).all()
  for own, count in zip(dealt, counts, strict=True):
    assert (np.diff(count[own < 7]) >= 0).all()  # small ones first
  assert (deal.ids[:7] < 7).all()  # places left over are the last
  assert (deal.ids[deal.position] == ids).all()
