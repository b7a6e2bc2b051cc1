"""Entries are submitted and verified, and refused where they do not fit."""

import json
import shutil

import numpy as np
import pytest
from helpers import refused
from pages import ROOT

from configs.leaderboard import load_form
from experiments.entries import entries, form_data
from experiments.entries.entries import submit
from experiments.entries.verify import verify
from fedjax_pfl.compare import protocol
from fedjax_pfl.core import atomic_files
from fedjax_pfl.data import partition
from fedjax_pfl.results.runs import entry as results
from fedjax_pfl.results.runs import stored_counts as stored
from fedjax_pfl.results.statistics.board import make_board
from fedjax_pfl.results.tables.board_tables import tables_of

STORED, MARKED = ROOT / 'results' / 'entries', '| recomputed |'
STATED = {'authors': 'Doe', 'paper': 'none', 'code': ''}
SHARES = {'fedavg': 0.9, 'local_only': 0.8, 'fedbabu': 0.92}


@pytest.fixture(scope='module')
def data():
  return form_data.load(load_form('demo'), 's=5')


@pytest.fixture(scope='module')
def found(data):
  """Return what a comparison found: clients that are right so often."""
  rng, made = np.random.default_rng(0), []
  tuned = results.Choice({'learning_rate': 0.01}, 'finetuned', 90.0, ())
  for name, share in SHARES.items():
    entry = results.Entry(name, 'method', tuned, data.form.seeds)
    views = {'before': 0.5, 'after': share}
    if name == 'local_only':
      del views['before']
    drawn = {view: rng.binomial(data.tests, p) for view, p in views.items()}
    views = {view: results.Counts(x, data.tests) for view, x in drawn.items()}
    costs = (results.Costs(4500.0, 1.5e6, 2e6, 9.0),) * 3
    made.append(entry._replace(costs=costs, **views))
  return made


@pytest.fixture
def submitted(data, found, tmp_path):
  """Return the folders of three entries of that comparison."""
  about = protocol.about(data.form)._replace(commit='c0ffee')
  stored.write({'s=5': found}, about, tmp_path / 'a_counts.csv')
  for method in SHARES:
    submit(tmp_path, load_form, method, '', STATED, tmp_path / method)
  return [tmp_path / method for method in SHARES]


def test_the_table_of_entries_is_that_of_the_comparison(data, found, submitted):
  text = verify(submitted, load_form, 'Local only')
  about = protocol.about(data.form)._replace(baselines=('local_only',))
  board = make_board(about, 's=5', found)
  rows = [[cell.line for cell in row] for row in tables_of(board)[0].rows]
  assert len(rows) == 3
  for cells in rows:
    line = ' | '.join([*cells, 'recomputed'])
    assert line in text.replace('**', ''), line
  fields, entry = entries.read(submitted[1])
  assert entry.before is None and {*fields['accuracy']} == {'after'}
  assert fields['code'] == 'c0ffee' and fields['trainings'] == 5


def test_an_edited_commit_is_no_code(data, found, tmp_path):
  about = protocol.about(data.form)._replace(commit='c0ffee-dirty')
  stored.write({'s=5': found}, about, tmp_path / 'a_counts.csv')
  which = tmp_path, load_form, 'fedavg', '', STATED, tmp_path / 'new'
  assert "code: got '', expected an address" in refused(submit, *which)
  assert not (tmp_path / 'new').exists()


def test_an_entry_without_counts_is_reported(submitted):
  (submitted[2] / entries.CLIENTS).unlink()
  text = verify(submitted, load_form)
  assert 'FedBABU: reported, 9' in text and '| FedBABU' not in text
  assert 'Highest' not in verify(submitted[:1], load_form)


def test_a_rerun_says_whether_the_mean_holds(found, submitted, monkeypatch):
  def train(unit, folder):
    assert unit.candidates == ({'learning_rate': 0.01},)
    return found[[*SHARES].index(unit.method)]

  monkeypatch.setattr('experiments.entries.verify.train_unit', train)
  assert '| re-run |' in verify(submitted[:1], load_form, rerun='fedavg')
  assert 're-run' not in verify(submitted[:1], load_form, rerun='local_only')
  edit(submitted[0], 'settings', {'rounds': 100})
  message = refused(verify, submitted[:1], load_form, '', 'fedavg')
  assert "got 'rounds', expected learning_rate or hp.NAME" in message


def edit(place, field, value):
  fields = json.loads((place / entries.FIELDS).read_text())
  (place / entries.FIELDS).write_text(json.dumps({**fields, field: value}))


def edit_counts(place, name, change):
  arrays = atomic_files.read_npz(place / entries.CLIENTS)
  arrays[name] = change(arrays[name])
  atomic_files.write_npz(place / entries.CLIENTS, arrays)


def raised(by):  # the count of one client
  return lambda counts: (
    counts + by * (np.arange(counts.size) == 277).reshape(counts.shape)
  )


@pytest.mark.parametrize(
  ('where', 'name', 'value', 'words'),
  [
    (edit, 'mark', 're-run', "the fields of entry.json, all and no other"),
    (edit, 'authors', ' ', "authors: got ' ', expected a line"),
    (edit, 'method', 'Mine\x1b[2J', 'a line of text, without |'),
    (edit, 'method', r'Mine \input{x}', 'a line of text, without |, < and'),
    (edit, 'method', '<b>', 'a line of text, without |, < and'),
    (edit, 'accuracy', {'before': 50.0, 'after': 99.5}, 'the mean of the'),
    (edit, 'accuracy', {'after': 99.5}, 'accuracy before: got None'),
    (edit, 'form', 'nobody', 'a frozen form'),
    (edit, 'partition', 's=2', 'a partition of the form demo'),
    (edit, 'fingerprints', ['a', 'b', 'c'], 'images and rows as'),
    (edit, 'trainings', 6, 'expected 5 or fewer, the budget'),
    (edit, 'gradients', 27001, 'expected 27,000 or fewer, 6 times'),
    (edit_counts, 'seed', lambda seeds: seeds + 3, 'seeds of the form, (0'),
    (edit_counts, 'total', raised(1), 'of client 7, seed 1'),
    (edit_counts, 'correct', raised(-99), 'of client 7, seed 1'),
    (edit_counts, 'correct', raised(99), 'its tests, or fewer'),
    (edit_counts, 'view', lambda views: views[:1], 'whole numbers correct'),
    (edit_counts, 'total', lambda total: total / 1, 'whole numbers'),
  ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
  where, name, value, words, data, submitted, monkeypatch
):
  place = submitted[0]
  where(place, name, value)
  if name not in ('form', 'partition'):
    monkeypatch.setattr(form_data, 'load', lambda *args: data)
  assert words in refused(verify, [place], load_form)


def test_two_entries_of_one_name_are_refused(submitted, tmp_path):
  shutil.copytree(submitted[0], tmp_path / 'again')
  message = refused(verify, [submitted[0], tmp_path / 'again'], load_form)
  assert 'FedAvg of demo, FedAvg of demo' in message


def test_another_program_gets_the_rows_of_every_seed(data, tmp_path):
  form_data.export(data, entries.blank(data), tmp_path / 'demo')
  tests = []
  for seed in data.form.seeds:
    file = tmp_path / 'demo' / f'seed_{seed}.json'
    rows = json.loads(file.read_text())
    tests.append([len(own) for own in rows['test']])
    assert rows['partition']['test'] == partition.fingerprint(rows['test'])
  np.testing.assert_array_equal(tests, data.tests)
  images = np.load(tmp_path / 'demo' / 'images.npz')
  assert images['test_x'].shape == data.dataset.test.x.shape


def test_the_stored_entries_fit_the_form():
  text = verify(sorted(STORED.iterdir()), load_form)
  made, shown = (
    {line.split(' | ')[0]: line for line in one.splitlines() if MARKED in line}
    for one in (text, (ROOT / 'docs' / 'leaderboard.md').read_text())
  )
  assert len(made) == len([*STORED.iterdir()]) == 3 and {*made} == {*shown}
  for name, line in shown.items():
    assert {*line.split(' | ')} <= {*made[name].split(' | ')}
