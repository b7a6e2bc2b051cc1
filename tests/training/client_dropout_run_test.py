"""A run whose clients fail: killed, continued, and counted."""

import shutil
from unittest import mock

import jax
import numpy as np
import pytest
from small_runs import (
  TASK,
  assert_same_run,
  make_experiment,
  restored,
  spoil_upload,
)

from fedjax_pfl.core import trees
from fedjax_pfl.federated.cohort import sample_cohorts
from fedjax_pfl.federated.failures import has_sent
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.run_dir import Run
from fedjax_pfl.training.loop import train
from fedjax_pfl.training.state import random_streams

pytestmark = pytest.mark.usefixtures('quick_compiler')
ROUNDS, CLIENTS, KILLED, RATE = 4, 6, 2, 0.4
SETTINGS = {
  'algorithm': 'fedper',
  'num_clients': CLIENTS,
  'shards_per_client': 5,
  'client_fraction': 0.5,
  'rounds': ROUNDS,
  'dropout_rate': RATE,
  'views': ('initial',),
  'eval_views': (),
  'log_every': 1,
  'eval_every': ROUNDS,
  'checkpoint_every': KILLED,
}


@pytest.fixture(scope='module')
def played(tmp_path_factory, quick_compiler):
  """Return an experiment, and the folder of its run and of a killed copy."""
  experiment = make_experiment(**SETTINGS)
  folder = tmp_path_factory.mktemp('dropout')

  def save(self, step, state, save=Run.save_checkpoint):
    save(self, step, state)
    if step == KILLED:
      shutil.copytree(folder / 'run', folder / 'killed')

  with mock.patch.object(Run, 'save_checkpoint', save):
    train(experiment, folder / 'run')
  return experiment, folder


def sent_by_hand(experiment):
  """Return who is in the cohorts, and who of them sends: [T, C]."""
  keys = random_streams(experiment.settings.seed)
  cohorts = np.asarray(
    sample_cohorts(keys['cohorts'], 0, ROUNDS, CLIENTS, experiment.cohort_size)
  )
  fold_in = jax.random.fold_in
  sent = [
    [
      bool(has_sent(fold_in(fold_in(keys['rounds'], number), client), RATE))
      for client in cohort
    ]
    for number, cohort in enumerate(cohorts)
  ]
  return cohorts, np.array(sent)


def test_a_killed_run_ends_with_the_same_bits(played):
  experiment, folder = played
  train(experiment, folder / 'killed')
  assert_same_run(folder / 'killed', folder / 'run')
  for path in (folder / 'killed', folder / 'run'):
    assert run_dir.load_result(path)['status'] == 'finished'


def test_what_is_sent_is_counted(played):
  """Every client of a cohort downloads, and those that fail upload nothing."""
  experiment, folder = played
  _, sent = sent_by_hand(experiment)
  assert 0 < sent.sum() < sent.size
  params = restored(experiment, folder / 'run').server.params
  body = trees.num_bytes(trees.select(params, trees.invert(TASK.is_head)))
  lines = run_dir.load_metrics(folder / 'run')
  for line, own in zip(lines, sent, strict=True):
    assert line['dropped'] == (~own).sum()
    assert line['bytes_up'] == own.sum() * body
    assert line['bytes_down'] == own.size * (body + 4)  # and the clock
    assert np.isfinite(line['loss'])
  assert not [name for name in lines[0] if 'sent' in name]


def test_without_unseen_clients_nothing_is_added(played):
  _, folder = played
  workdir = folder / 'run'
  assert 'unseen' not in run_dir.load_result(workdir)
  assert run_dir.load_clients(workdir).unseen is None
  with np.load(workdir / run_dir.CLIENTS) as arrays:
    assert not [name for name in arrays.files if name.startswith('unseen')]


def test_clients_that_always_fail_keep_their_state(played):
  experiment, folder = played
  cohorts, sent = sent_by_hand(experiment)
  heard = np.unique(cohorts[sent])
  others = np.setdiff1d(np.arange(CLIENTS), heard)
  assert others.size
  heads = restored(experiment, folder / 'run').clients['head']['kernel']
  same = [np.array_equal(head, heads[others[0]]) for head in heads]
  assert [*np.flatnonzero(same)] == [*others]


@pytest.mark.long
def test_a_client_whose_nan_is_never_sent_is_not_excluded(played, tmp_path):
  """Nor does it reach the server."""
  experiment, _ = played
  cohorts, sent = sent_by_hand(experiment)
  number, place = np.argwhere(~sent)[0]
  client = int(cohorts[number, place])
  spoilt = spoil_upload(
    make_experiment(**SETTINGS, on_divergence='exclude'), client, [number]
  )
  train(spoilt, tmp_path)
  lines = run_dir.load_metrics(tmp_path)
  assert [line['excluded'] for line in lines] == [0] * ROUNDS
  assert [line['dropped'] for line in lines] == (~sent).sum(1).tolist()
