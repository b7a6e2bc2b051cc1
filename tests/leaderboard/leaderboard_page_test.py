"""The page and the CSV of boards that were made of numbers."""

import re
from html import unescape

import numpy as np
import pytest
from helpers import refused

from configs.leaderboard import load_form
from fedjax_pfl.leaderboard import fill_form, page
from fedjax_pfl.leaderboard.board import (
  changed_verdicts,
  make_board,
  read,
  sentences,
  write,
)
from fedjax_pfl.leaderboard.method_results import Costs, Entry, Tuned

S, K = 3, 20
COSTS = Costs(1200.0, 3e6, 4e6, 2.5)


def make_entry(method, mean, *, spread=0.0, before=None, **changes):
  """Return an entry whose clients differ from `mean` by a pattern of their own.

  The pattern is that of all methods; `spread` is what pairs differ by.
  """
  pattern = 10 * np.cos(np.arange(S * K)).reshape(S, K)
  pattern -= pattern.mean()
  own = np.random.default_rng(len(method)).normal(size=(S, K))
  after = mean + pattern + spread * (own - own.mean())
  first = None if before is None else before + pattern
  choice = Tuned(0.03, 'finetuned', 91.0, is_edge=False)
  fields = {'choice': choice, 'before': first, 'after': after, 'costs': COSTS}
  return Entry(method, is_reference=False, **fields)._replace(**changes)


def make_entries():
  return [
    make_entry('fedavg', 80, before=55),
    make_entry('local_only', 78, spread=1),
    make_entry('fedrep', 84, spread=1, before=70),
    make_entry('fedbabu', 84.1, spread=2, before=60),
    make_entry('ditto', 77.9, spread=6, before=55),
    make_entry('per_fedavg', 60, spread=1, before=50),
    make_entry(
      'centralized', 0, is_reference=True, after=np.full((S, 1), 97.5)
    ),
    make_entry(
      'pfedme', 0, after=None, costs=None, obstacle='diverged with every rate'
    ),
  ]


@pytest.fixture(scope='module')
def form():
  return load_form('digits')


@pytest.fixture(scope='module')
def boards(form):
  return [make_board(form, name, make_entries()) for name in ('s=2', 's=5')]


@pytest.fixture(scope='module')
def html(form, boards):
  return page.render(form, boards, ['1 of 2 verdicts <are> the same.'])


def test_sentences_name_who_is_where(boards):
  best, fedavg, local, obstacle = sentences(boards[0])
  assert best == (
    'Highest: FedBABU, 84.1 % on average over clients after personalisation; '
    'not distinguishable from it: FedAvg, FedRep, Ditto.'
  )
  assert fedavg == (
    'Against FedAvg + fine-tuning, above: FedBABU (+4.1), FedRep (+4.0); '
    'below: Local only (-2.0), Per-FedAvg (-20.0); not distinguishable from '
    'it: Ditto.'
  )
  assert local.startswith('Against Local only, above: FedBABU (+6.1), ')
  assert obstacle == 'pFedMe diverged with every rate.'


def test_page_is_whole_and_says_what_the_numbers_say(form, boards, html):
  all_ = len(form.methods)
  text = ' '.join(unescape(re.sub(r'<[^>]+>', ' ', html)).split())
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
  row = boards[0].rows[4]
  ends = f'{row["vs_fedavg_low"]:+.2f} to {row["vs_fedavg_high"]:+.2f}'
  assert text.count(ends) == 4  # of two partitions, in table and chart
  # Ditto and Per-FedAvg, of two partitions, in two tables.
  assert text.count('▼ below local-only') == 8
  assert 'http' not in re.sub(r'http-equiv', '', html)


@pytest.fixture
def written(boards, tmp_path):
  """Return the rows of the CSV, as texts."""
  path = tmp_path / 'board.csv'
  write([row for one in boards for row in one.rows], path)
  assert refused(read, path, 'demo').startswith('against: got ')
  assert 'the seeds 0 1 2, and' in refused(read, path, 'digits', (5, 2))
  return read(path, 'digits', (3, 4))


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


def test_a_stopped_repetition_replaces_no_longer_leaderboard(form, tmp_path):
  entries, path = make_entries(), tmp_path / 'board.html'
  methods = tuple(entry.method for entry in entries)

  def write(*names, of=('s=2', 's=5')):
    own = form._replace(methods=methods, partitions=dict.fromkeys(of))
    fill_form.write(own, dict.fromkeys(names, entries), path)
    return len(read(path.with_suffix('.csv'), 'digits'))

  assert write('s=2') == 8 and write('s=2', 's=5') == 16
  assert write('s=2') == 16
  assert write('s=2', of=('s=2',)) == 8  # all of another form


def test_changed_verdicts_are_named(boards, written):
  ours = boards[0].rows
  others = [{**row, 'seeds': '3 4 5'} for row in written[:8]]
  (line,) = changed_verdicts(ours, others)
  assert line.startswith('10 of 10 verdicts are those of seeds 3 4 5; 0 are')
  fedrep = next(row for row in others if row['method'] == 'fedrep')
  fedrep['vs_fedavg_verdict'] = 'below'
  fedrep['vs_local_only_verdict'] = 'not distinguishable'
  first, *lines = changed_verdicts(ours, others)
  assert '8 of 10' in first and '1 are the contrary, 1 are' in first
  assert lines == [
    's=2, FedRep against FedAvg + fine-tuning: above, there below.',
    's=2, FedRep against Local only: above, there not distinguishable.',
  ]
  assert changed_verdicts(ours, []) == []
