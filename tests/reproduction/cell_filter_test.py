"""Cells chosen by their fields."""

import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.cells import Cell, Published, Reading
from fedjax_pfl.reproduction.planning.cell_filter import describe, where


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


def test_numbers_are_compared_as_numbers_and_no_value_is_any():
  assert where(CELLS, '') == CELLS
  assert where(CELLS, 'client_fraction=1') == (CELLS[2], CELLS[3])
  assert where(CELLS, 'shards_per_client=5, client_fraction=0.10') == (
    CELLS[0],
    CELLS[3],
  )
  assert where(CELLS, 'part=body,algorithm=fedavg') == (CELLS[2],)


@pytest.mark.parametrize(
  'text, said',
  [
    ('shards_per_client=7', '5, 10'),
    ('shards_per_client=10,client_fraction=1.0', 'fraction'),
    ('colour=red', 'shards_per_client=5 or 10'),
    ('part=head', 'body'),
    ('shards', 'shards_per_client=10,client_fraction=0.1'),
    ('shards_per_client=5,', 'comma'),
  ],
)
def test_what_matches_nothing_shows_the_values_there_are(text, said):
  with pytest.raises(BadInput) as caught:
    where(CELLS, text)
  assert '--where' in str(caught.value)
  assert said in str(caught.value)


def test_describe_leaves_out_what_is_not_there():
  names = ('shards', 'fraction', 'local_epochs')
  assert describe(CELLS[3].published, names) == 'shards 5, local epochs 10'
