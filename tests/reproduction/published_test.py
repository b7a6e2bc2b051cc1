"""The published numbers: as printed, their footnotes, chosen, and of a run."""

import pytest
from helpers import refused
from printed import load_cells

from configs import common
from experiments.reproduction import published
from experiments.reproduction.cells import (
  Cell,
  Published,
  Reading,
  field,
  filter_cells,
)
from experiments.reproduction.published import published_for_run


def find(paper, table, **fields):
  """Return the printed cells of a table with these fields."""
  return [
    row
    for row in published.load()
    if (row.paper, row.table) == (paper, table)
    and all(field(row, name) == value for name, value in fields.items())
  ]


def test_no_two_numbers_are_alike():
  rows = published.load()
  assert len(rows) == 1836
  keys = {
    (*row._replace(variant=None, mean=None, std=None), *row.variant.items())
    for row in rows
  }
  assert len(keys) == len(rows)  # then a cell may be named by its fields
  s5 = {**SETTING, 'algorithm': 'fedbabu', 'local_epochs': 1}
  (row,) = find('fedbabu', '13', **s5)
  assert (row.mean, row.std, row.num_clients) == (82.76, 6.47, 100)
  assert find('superfed', '1')[0].std is None


@pytest.mark.parametrize(
  'note', [note for group in published.load_footnotes() for note in group]
)
def test_every_footnote_is_about_some_cell(note):
  """A misspelt field or value would silently drop a footnote."""
  noted = [
    row for row in published.load() if note.text in published.footnotes_of(row)
  ]
  assert noted and note.text.endswith('.')
  for name, values in note.where.items():
    assert {field(row, name) for row in noted} >= set(values), name


# ---- Cells chosen by their fields --------------------------------------------

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
  ('text', 'found'),
  [
    ('', (0, 1, 2, 3)),
    # Numbers are compared as numbers, and no value matches any.
    ('client_fraction=1', (2, 3)),
    ('shards_per_client=5, client_fraction=0.10', (0, 3)),
    ('part=body,algorithm=fedavg', (2,)),
    ('shards_per_client=7', '5, 10'),
    ('colour=red', 'shards_per_client=5 or 10'),
    ('shards', 'shards_per_client=10,client_fraction=0.1'),
    ('shards_per_client=5,', 'comma'),
  ],
)
def test_the_cells_that_match_or_the_values_there_are(text, found):
  if isinstance(found, str):
    message = refused(filter_cells, CELLS, text)
    assert message.startswith('--where: ') and found in message
  else:
    assert filter_cells(CELLS, text) == tuple(CELLS[at] for at in found)


# ---- The numbers for a run ---------------------------------------------------

SETTING = {'shards_per_client': 5, 'local_epochs': 10, 'client_fraction': 0.1}


def ask(method='fedbabu_cifar10:fedbabu', rounds=32, **changes):
  config = common.load(method).to_dict()
  stored = {'config': {**config, **SETTING, **changes}}
  return published_for_run(stored, rounds, load_cells())


@pytest.mark.parametrize(
  ('method', 'changes', 'view', 'number'),
  [
    ('cifar10:fedbabu', {}, 'initial', (55.55, 9.90, 'FedBABU, Table 12')),
    ('cifar10:fedbabu', {}, 'finetuned', (80.99, 7.64, 'FedBABU, Table 13')),
    ('cifar10:per_fedavg', {}, 'adapted', (47.48, 13.76, 'FedBABU, Table 13')),
    # Of the public code, and not of the paper.
    (
      *('cifar10:fedper', {'hp': {'protocol': 'released'}}, 'finetuned'),
      (74.92, 8.32, 'FedBABU, Table 13'),
    ),
  ],
)
def test_a_run_of_a_printed_setting_has_its_number(
  method, changes, view, number
):
  found = ask(f'fedbabu_{method}', **changes)
  assert found[view][:3] == number
  # A field that changes no number hides none.
  free = {'tracker': 'wandb', 'devices': 2, 'eval_every': 3, 'seed': 7}
  assert ask(f'fedbabu_{method}', **changes, **free) == found


@pytest.mark.parametrize(
  'changes',
  [
    {'shards_per_client': 3},
    {'momentum': 0.5},
    {'hp': {'trainable': 'full'}},
    {'method': 'fedbabu_cifar10:fedper'},  # print is of the public code
    {'method': 'fedbabu_cifar10:lg_fedavg'},  # it begins with FedAvg's model
  ],
  ids=str,
)
def test_another_setting_has_no_printed_number(changes):
  assert ask(**changes) == {}
  assert ask(rounds=20) == {}  # it was stopped
