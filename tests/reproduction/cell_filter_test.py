"""Cells chosen by their fields."""

import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import Cell, Published, Reading


def cell(
  algorithm='fedavg', shards_per_client=5, client_fraction=0.1, **variant
):
  setting = (
    'cifar10',
    'convnet4',
    algorithm,
    100,
    shards_per_client,
    client_fraction,
    10,
  )
  published = Published(
    'fedbabu', '13', *setting, 'shards', 'initial_accuracy', variant, 50.0, 1.0
  )
  return Cell(published, {}, Reading('initial'))


CELLS = (
  cell(),
  cell(shards_per_client=10),
  cell(client_fraction=1.0, part='body'),
  cell('local_only', client_fraction=None),
)


def test_numbers_are_compared_as_numbers_and_no_value_matches_any():
  assert filter_cells(CELLS, '') == CELLS
  assert filter_cells(CELLS, 'client_fraction=1') == (CELLS[2], CELLS[3])
  assert filter_cells(CELLS, 'shards_per_client=5, client_fraction=0.10') == (
    CELLS[0],
    CELLS[3],
  )
  assert filter_cells(CELLS, 'part=body,algorithm=fedavg') == (CELLS[2],)


@pytest.mark.parametrize(
  'text, listed',
  [
    ('shards_per_client=7', '5, 10'),
    ('shards_per_client=10,client_fraction=1.0', 'fraction'),
    ('colour=red', 'shards_per_client=5 or 10'),
    ('part=head', 'body'),
    ('shards', 'shards_per_client=10,client_fraction=0.1'),
    ('shards_per_client=5,', 'comma'),
  ],
)
def test_what_matches_nothing_shows_the_values_there_are(text, listed):
  with pytest.raises(BadInput) as caught:
    filter_cells(CELLS, text)
  assert '--where' in str(caught.value)
  assert listed in str(caught.value)
