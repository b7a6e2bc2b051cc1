"""Cells chosen by their fields."""

import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.cell_filter import filter_cells
from fedjax_pfl.reproduction.cells import Cell, Published, Reading

FIRST = Published(
  *('fedbabu', '13', 'cifar10', 'convnet4', 'fedavg', 100, 5, 0.1, 10),
  *('shards', 'initial_accuracy', {}, 50.0, 1.0),
)
CELLS = tuple(
  Cell(FIRST._replace(**changes), {}, Reading('initial'))
  for changes in (
    {},
    {'shards_per_client': 10},
    {'client_fraction': 1.0, 'variant': {'part': 'body'}},
    {'algorithm': 'local_only', 'client_fraction': None},
  )
)


@pytest.mark.parametrize(
  ('text', 'places'),
  [
    ('', (0, 1, 2, 3)),
    # Numbers are compared as numbers, and no value matches any.
    ('client_fraction=1', (2, 3)),
    ('shards_per_client=5, client_fraction=0.10', (0, 3)),
    ('part=body,algorithm=fedavg', (2,)),
  ],
)
def test_the_cells_that_match(text, places):
  assert filter_cells(CELLS, text) == tuple(CELLS[at] for at in places)


@pytest.mark.parametrize(
  ('text', 'listed'),
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
  with pytest.raises(BadInput, match=f'--where.*{listed}'):
    filter_cells(CELLS, text)
