"""The file of a queue: what is in ours, and what is refused in a sentence."""

from pathlib import Path

import pytest
from helpers import refused
from printed import load_table

from fedjax_pfl.reproduction.queue import load_queue

QUEUE = Path(__file__).parents[2] / 'results' / 'queue.toml'


def test_our_queue_is_in_the_order_of_its_worth():
  """Cells of other claims are compared by claims_test.py."""
  queue = load_queue(QUEUE, load_table)  # every entry names cells
  order = [entry.claim for entry in queue.entries]
  assert order == sorted(order) and [*queue.claims] == sorted({*order})
  for entry in queue.entries:
    is_long = entry.table.name == 'pfllib/1'  # one run of clients of theirs
    assert entry.seeds == ((1,) if is_long else (0, 1, 2))
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


@pytest.mark.parametrize(
  ('changes', 'words'),
  [
    ({'table': "'fedbabu/31'"}, "table: got 'fedbabu/31', "),
    ({'where': "'shards=5'"}, "--where: got 'shards', "),
    ({'seeds': '[0, 0]'}, 'seeds: got [0, 0]'),
    ({'minutes': '-1'}, 'minutes: got -1'),
    ({'minutes': ''}, "field: got 'no minutes', "),
    ({'minuts': '1'}, 'did you mean minutes?'),
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
    (CLAIMS, 'one or more [[cells]]'),
    (FIRST + entry() + TWICE, 'in [[cells]] 2 and 3'),
  ],
)
def test_a_wrong_file_is_a_sentence(tmp_path, text, words):
  path = tmp_path / 'queue.toml'
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  message = refused(load_queue, path, load_table)
  assert str(path) in message and words in message
