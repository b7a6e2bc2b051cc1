"""The file of a queue: what is in ours, and what is refused in a sentence."""

from pathlib import Path

import pytest

from configs.leaderboard import load_form
from configs.tables.common import load_table
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.reproduction.queue import states
from fedjax_pfl.reproduction.queue.entries import load_queue

QUEUE = Path(__file__).parents[2] / 'results' / 'queue.toml'


@pytest.fixture(scope='module')
def queue():
  return load_queue(QUEUE, load_table)  # every entry names cells


def test_the_queue_has_the_whole_row_of_the_first_claim(queue):
  """Cells of other claims are compared by claim_docs_test.py."""
  cells = [
    cell.published.algorithm
    for entry in queue.entries
    if (entry.claim, entry.table.name) == ('a', 'fedbabu/13')
    for cell in entry.cells
  ]
  assert sorted(cells) == [
    *('ditto', 'fedavg', 'fedbabu', 'fedper', 'fedrep', 'lg_fedavg'),
    *('local_only', 'per_fedavg'),
  ]


def test_the_queue_is_in_the_order_of_its_worth(queue):
  order = [entry.claim for entry in queue.entries]
  assert order == sorted(order) and [*queue.claims] == sorted({*order})
  assert {*order} == {*'abcdefg'}
  assert [load_form(name).name for name in queue.leaderboards] == ['cifar10']
  for entry in queue.entries:
    assert entry.seeds == (0, 1, 2)
    names = ('shards_per_client', 'num_clients', 'local_epochs', 'dataset')
    settings = {tuple(cell.settings[n] for n in names) for cell in entry.cells}
    assert len(settings) == 1, entry.where
  lines = [
    (states.methods(one), states.setting(one), one.table.name)
    for one in queue.entries
  ]
  assert len({*lines}) == len(lines)  # every entry has one of its own
  assert lines[0] == ('Ditto', 's=5 f=0.1 tau=10', 'fedbabu/13')


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
  path = tmp_path / 'queue.toml'
  path.write_text(FIRST + entry(**changes))
  with pytest.raises(BadInput, match=words) as caught:
    load_queue(path, load_table)
  assert f'{path}, [[cells]] 2: ' in str(caught.value)
  assert 'Likely cause: ' in str(caught.value)


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('[claims', 'expected a file in TOML'),
    (b'\xff', 'expected a file in TOML'),
    (None, 'no such file or directory'),
    ('claims = 1\n' + entry(), 'a sentence for each claim'),
    (CLAIMS, r'one or more \[\[cells\]\]'),
    (f'cells = [1]\n{CLAIMS}', r'\[\[cells\]\] 1: .*got 1'),
    ('cell = 1\n' + entry(), "got 'cell', .* a part of a queue"),
    ("leaderboards = 'cifar10'\n" + entry(), "got 'cifar10', .*forms of the"),
    (
      FIRST + entry() + TWICE,
      r'a cell of fedbabu/13, seed 0, .* 2 and 3.*every cell once',
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
