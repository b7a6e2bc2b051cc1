"""The file of a queue: what is in ours, and what is refused in a sentence."""

from pathlib import Path

import pytest
from helpers import refused

from configs.leaderboard import load_form
from configs.tables.common import load_table
from fedjax_pfl.reproduction.queue import load_queue

QUEUE = Path(__file__).parents[2] / 'results' / 'queue.toml'


def test_our_queue_is_in_the_order_of_its_worth():
  """Cells of other claims are compared by claims_test.py."""
  queue = load_queue(QUEUE, load_table)  # every entry names cells
  order = [entry.claim for entry in queue.entries]
  assert order == sorted(order) and [*queue.claims] == sorted({*order})
  assert [load_form(name).name for name in queue.leaderboards] == ['cifar10']
  row = [
    cell.published.algorithm
    for entry in queue.entries
    if (entry.claim, entry.table.name) == ('a', 'fedbabu/13')
    for cell in entry.cells
  ]
  assert sorted(row) == [  # the whole row
    *('ditto', 'fedavg', 'fedbabu', 'fedper', 'fedrep', 'lg_fedavg'),
    *('local_only', 'per_fedavg'),
  ]
  for entry in queue.entries:
    assert entry.seeds == (0, 1, 2)
    names = ('shards_per_client', 'num_clients', 'local_epochs', 'dataset')
    settings = {tuple(cell.settings[n] for n in names) for cell in entry.cells}
    assert len(settings) == 1, entry.where


CLAIMS = "[claims]\na = 'b'\n"
GOOD = {
  'claim': "'a'",
  'table': "'fedbabu/13'",
  'where': "'algorithm=ditto,shards_per_client=5'",
  'seeds': '[0, 1]',
  'minutes': '70',
}


def entry(**changes):
  fields = {**GOOD, **changes}
  lines = [f'{name} = {text}' for name, text in fields.items() if text]
  return '\n'.join(['[[cells]]', *lines, ''])


FIRST = CLAIMS + entry(where="'algorithm=fedavg'")
TWICE = entry(where="'shards_per_client=5,algorithm=ditto'")


def test_an_entry(tmp_path):
  path = tmp_path / 'queue.toml'
  path.write_text(CLAIMS + entry(note="'c'"))
  queue = load_queue(path, load_table)
  (one,) = queue.entries
  assert (one.claim, one.table.name) == ('a', 'fedbabu/13')
  assert (one.seeds, one.minutes) == ((0, 1), 70)
  assert {cell.published.algorithm for cell in one.cells} == {'ditto'}
  assert queue.claims == {'a': 'b'}


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'table': "'fedbabu/31'"}, "table: got 'fedbabu/31', "),
    ({'table': "'fedbabu/fig12'"}, 'figures have no cells'),
    ({'table': '13'}, 'table: got 13, expected a text'),
    ({'where': "'shards=5'"}, "--where: got 'shards', "),
    ({'where': "'shards_per_client=7'"}, 'Choices: 10, 5, 2'),
    ({'where': "''"}, "where: got '', expected a text"),
    ({'seeds': '0'}, 'seeds: got 0, expected seeds, such as [0, 1, 2]'),
    ({'seeds': '[0, 0]'}, 'seeds: got [0, 0]'),
    ({'seeds': '[true]'}, 'seeds: got [True]'),
    ({'minutes': "'70'"}, "minutes: got '70', expected a number of minutes"),
    ({'minutes': '-1'}, 'minutes: got -1'),
    ({'minutes': 'inf'}, 'minutes: got inf'),
    ({'minutes': ''}, "field: got 'no minutes', "),
    ({'minuts': '1'}, 'did you mean minutes?'),
    ({'claim': "'z'"}, "claim: got 'z', expected a claim of "),
    ({'note': '1'}, 'note: got 1, expected a text'),
  ],
)
def test_a_wrong_entry_is_named(tmp_path, changes, words):
  path = tmp_path / 'queue.toml'
  path.write_text(FIRST + entry(**changes))
  message = refused(load_queue, path, load_table)
  assert f'{path}, [[cells]] 2: ' in message and words in message


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    (b'[claims', 'expected a file in TOML'),
    (b'\xff', 'expected a file in TOML'),
    (None, 'no such file or directory'),
    ('claims = 1\n' + entry(), 'a sentence for each claim'),
    (CLAIMS, 'one or more [[cells]]'),
    (f'cells = [1]\n{CLAIMS}', '[[cells]] 1: entry: got 1'),
    ('cell = 1\n' + entry(), "got 'cell', expected a part of a queue"),
    ("leaderboards = 'cifar10'\n" + entry(), 'expected forms of the'),
    (FIRST + entry() + TWICE, 'in [[cells]] 2 and 3'),
  ],
)
def test_a_wrong_file_is_a_sentence(tmp_path, text, words):
  path = tmp_path / 'queue.toml'
  if text is not None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
  message = refused(load_queue, path, load_table)
  assert str(path) in message and words in message
