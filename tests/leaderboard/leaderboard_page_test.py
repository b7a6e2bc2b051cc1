"""The page and the CSV of boards that were made of numbers."""

import re
from html.parser import HTMLParser

import pytest
from helpers import refused
from made_entries import make_entries

from configs.leaderboard import load_form
from fedjax_pfl.leaderboard import page, rows
from fedjax_pfl.leaderboard.board import make_board


@pytest.fixture(scope='module')
def form():
  return load_form('digits')


@pytest.fixture(scope='module')
def boards(form):
  return [
    make_board(name, make_entries(), form.baselines) for name in ('s=2', 's=5')
  ]


@pytest.fixture(scope='module')
def html(form, boards):
  return page.render(form, boards, ['1 of 2 verdicts <are> the same.'])


class Text(HTMLParser):
  """The words of a page, and its tags that are still open."""

  def __init__(self):
    super().__init__()
    self.words, self.open = [], []

  def handle_starttag(self, tag, attrs):
    if tag not in ('meta', 'link', 'input', 'br'):
      self.open.append(tag)

  def handle_endtag(self, tag):
    assert self.open.pop() == tag

  def handle_data(self, data):
    self.words.append(data)


def test_page_is_whole_and_says_what_the_numbers_say(form, html):
  all_ = len(form.methods)
  parser = Text()
  parser.feed(html)
  assert not parser.open
  text = re.sub(r'\s+', ' ', ' '.join(parser.words))
  for words in (
    'Leaderboard on digits',
    # What was made is less than the form has.
    f'Not finished: s=2 has 8 of {all_} methods; s=5 has 8 of {all_} methods; '
    f'Dir(0.1) has 0 of {all_} methods.',
    'Highest: FedBABU, 84.1 %',
    'FedAvg + fine-tuning',
    'below local-only, within noise',  # Ditto
    'Minus Local only',
    'above FedAvg + fine-tuning: 2 of 5 at s=2, 2 of 5 at s=5; above',
    'one client has all data; 97.5 %',
    'pFedMe diverged with every rate',
    '1 of 2 verdicts <are> the same.',
    'No test reaches a choice',
  ):
    assert words in text, words
  # Ditto and Per-FedAvg, of two partitions, in two tables.
  assert text.count('▼ below local-only') == 8
  assert 'http' not in re.sub(r'http-equiv', '', html)


@pytest.fixture
def written(form, boards, tmp_path):
  """Return the rows of the CSV, as texts."""
  path = tmp_path / 'board.csv'
  rows.write([row for one in boards for row in rows.rows_of(form, one)], path)
  return rows.read(path)


def test_csv_has_every_number(written):
  assert len(written) == 2 * 8
  row = next(row for row in written if row['method'] == 'fedrep')
  shown = {
    **{'partition': 's=2', 'kind': 'method', 'seeds': '0 1 2'},
    **{'before': '70', 'after': '84', 'vs_fedavg_verdict': 'above'},
    **{'gradients': '1200', 'bytes_up': '3000000', 'learning_rate': '0.03'},
  }
  assert {name: row[name] for name in shown} == shown
  assert float(row['vs_fedavg_low']) < 4 < float(row['vs_fedavg_high'])
  kinds = {row['method']: row['kind'] for row in written}
  assert kinds['local_only'] == 'baseline'
  assert kinds['centralized'] == 'reference'
  assert written[-1]['method'] == 'pfedme' and written[-1]['after'] == ''


def test_changed_verdicts_are_named(form, boards, written):
  ours = rows.rows_of(form, boards[0])
  others = [{**row, 'seeds': '3 4 5'} for row in written[:8]]
  (line,) = rows.changed_verdicts(ours, others)
  assert line.startswith('10 of 10 verdicts are those of seeds 3 4 5; 0 are')
  fedrep = next(row for row in others if row['method'] == 'fedrep')
  fedrep['vs_fedavg_verdict'] = 'below'
  fedrep['vs_local_only_verdict'] = 'not distinguishable'
  first, *lines = rows.changed_verdicts(ours, others)
  assert '8 of 10' in first and '1 are the contrary, 1 are' in first
  assert lines == [
    's=2, FedRep against FedAvg + fine-tuning: above, there below.',
    's=2, FedRep against Local only: above, there not distinguishable.',
  ]
  assert rows.changed_verdicts(ours, []) == []


@pytest.mark.parametrize(
  ('content', 'words'),
  [
    (b'a,b\n1,2\n', 'a CSV of something else'),
    (None, 'no such file'),
    (b'\xff\xfe\x00', 'against: got'),
  ],
)
def test_a_file_that_is_no_leaderboard_is_refused(tmp_path, content, words):
  path = tmp_path / 'other.csv'
  if content:
    path.write_bytes(content)
  assert words in refused(rows.read, path)
