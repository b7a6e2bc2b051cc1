"""The file of a queue: what is in ours, and what is refused in a sentence."""

from pathlib import Path

import pytest

from configs.leaderboard import load_form
from configs.tables.common import load_table
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.queue import states
from fedjax_pfl.reproduction.queue.entries import load_queue

QUEUE = Path(__file__).parents[2] / 'results' / 'queue.toml'
FEW = {'fedbabu', 'fedavg', 'fedper', 'fedrep', 'local_only'}
ROW = {*FEW, 'ditto', 'lg_fedavg', 'per_fedavg'}


@pytest.fixture(scope='module')
def queue():
  return load_queue(QUEUE, load_table)  # every entry names cells


def methods(queue, claim, table, **fields):
  """Return the methods of the entries of a claim, with these settings."""
  return {
    cell.published.algorithm
    for entry in queue.entries
    if (entry.claim, entry.table.name) == (claim, table)
    for cell in entry.cells
    if all(cell.settings[name] == value for name, value in fields.items())
  }


def test_the_queue_has_every_claim_in_the_order_of_its_worth(queue):
  order = [entry.claim for entry in queue.entries]
  assert order == sorted(order) and [*queue.claims] == sorted({*order})
  assert {*order} == {*'abcdefg'}
  assert all(entry.seeds == (0, 1, 2) for entry in queue.entries)
  assert [load_form(name).name for name in queue.leaderboards] == ['cifar10']
  first = {
    'dataset': 'cifar10',
    'client_fraction': 0.1,
    'local_epochs': 10,
    'shards_per_client': 5,
  }
  without = {'dataset': 'cifar10', 'shards_per_client': 5}
  table = 'fedbabu/13'
  assert methods(queue, 'a', table, **without) == ROW
  assert methods(queue, 'a', table, **first) >= ROW - {'local_only'}
  assert methods(queue, 'a', 'fedbabu/12', **first) == {'fedbabu', 'fedavg'}
  for shards in (2, 10):
    own = {**without, 'shards_per_client': shards}
    assert methods(queue, 'd', table, **own) == FEW
  own = {'rounds': 200, 'num_clients': 100}
  assert methods(queue, 'b', 'superfed/1', **own) == {'superfed_mm', 'fedavg'}
  own = {'classes_per_client': 2, 'num_clients': 40, 'dataset': 'cifar10'}
  assert methods(queue, 'c', 'fedconcat/1', **own) == {'fedconcat', 'fedavg'}
  others = {'moon', 'fedprox', 'fedrs', 'fedlc'}
  assert methods(queue, 'f', 'fedconcat/1', **own) == others
  own = {'model': 'mobilenet', 'shards_per_client': 10, 'local_epochs': 10}
  assert methods(queue, 'e', 'fedbabu/5', **own) == {'fedbabu', 'fedavg'}


def test_no_entry_has_cells_of_another_setting(queue):
  for entry in queue.entries:
    names = ('shards_per_client', 'num_clients', 'local_epochs', 'dataset')
    settings = {tuple(cell.settings[n] for n in names) for cell in entry.cells}
    assert len(settings) == 1, entry.where


def test_every_entry_has_a_line_of_its_own(queue):
  lines = [
    (states.methods(one), states.setting(one), one.table.name)
    for one in queue.entries
  ]
  assert len({*lines}) == len(lines)
  assert lines[0] == ('Ditto', 's=5 f=0.1 tau=10', 'fedbabu/13')


def read(tmp_path, text):
  path = tmp_path / 'queue.toml'
  path.write_text(text)
  return load_queue(path, load_table)


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


def test_an_entry(tmp_path):
  queue = read(tmp_path, "[claims]\na = 'b'\n" + entry(note="'c'"))
  (one,) = queue.entries
  assert (one.claim, one.table.name) == ('a', 'fedbabu/13')
  assert (one.seeds, one.minutes) == ((0, 1), 70)
  assert {cell.published.algorithm for cell in one.cells} == {'ditto'}
  assert queue.claims == {'a': 'b'}


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'table': "'fedbabu/31'"}, r"table: got 'fedbabu/31', .*fedbabu/13"),
    ({'table': "'fedbabu/fig12'"}, 'table: got .*figures have no cells'),
    ({'table': '13'}, "table: got 13, expected a table, such as 'fedbabu/13'"),
    ({'where': "'shards=5'"}, "--where: got 'shards', .*shards_per_client=10"),
    ({'where': "'shards_per_client=7'"}, 'Choices: 10, 5, 2'),
    ({'where': "''"}, "where: got '', expected fields and values"),
    ({'seeds': '0'}, r'seeds: got 0, expected seeds, such as \[0, 1, 2\]'),
    ({'seeds': '[0, 0]'}, r'seeds: got \[0, 0\]'),
    ({'seeds': '[true]'}, r'seeds: got \[True\]'),
    ({'minutes': "'70'"}, "minutes: got '70', expected a number of minutes"),
    ({'minutes': '-1'}, 'minutes: got -1'),
    ({'minutes': 'inf'}, 'minutes: got inf'),
    ({'minutes': ''}, "field: got 'no minutes', .*Choices: claim, table"),
    ({'minuts': '1'}, r"field: got 'minuts', .*did you mean minutes\?"),
    ({'claim': "'z'"}, "claim: got 'z', expected a claim of .*Choices: a"),
    ({'note': '1'}, 'note: got 1, expected a sentence'),
  ],
)
def test_a_wrong_entry_is_named(tmp_path, changes, words):
  text = "[claims]\na = 'b'\n" + entry(where="'algorithm=fedavg'")
  with pytest.raises(BadInput, match=words) as caught:
    read(tmp_path, text + entry(**changes))
  assert f'{tmp_path / "queue.toml"}, [[cells]] 2: ' in str(caught.value)
  assert 'Likely cause: ' in str(caught.value)


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('[claims', 'expected a file in TOML'),
    (b'\xff', 'expected a file in TOML'),
    (None, 'no such file or directory'),
    ('claims = 1\n' + entry(), 'a sentence for each claim'),
    ("[claims]\na = 'b'\n", r'one or more \[\[cells\]\]'),
    ("cells = [1]\n[claims]\na = 'b'\n", r'\[\[cells\]\] 1: .*got 1'),
    ('cell = 1\n' + entry(), "got 'cell', .* a part of a queue"),
    ("leaderboards = 'cifar10'\n" + entry(), "got 'cifar10', .*forms of the"),
    (
      "[claims]\na = 'b'\n"
      + entry()
      + entry(where="'algorithm=fedavg'")
      + entry(where="'shards_per_client=5,algorithm=ditto'"),
      r'a cell of fedbabu/13, seed 0, .* 1 and 3.*every cell once',
    ),
  ],
)
def test_a_wrong_file_is_a_sentence(tmp_path, text, words):
  path = tmp_path / 'queue.toml'
  if text is not None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
  with pytest.raises(BadInput, match=words) as caught:
    load_queue(path, load_table)
  assert str(path) in str(caught.value)
