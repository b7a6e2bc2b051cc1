"""Analyses of runs, from their directories to a figure and a CSV."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import assert_same_bits, client_of, read_rows, refused

from experiments.reproduction import id_ood
from experiments.reproduction.id_ood import (
  OpenRun,
  check_own_halves,
  measure,
  open_runs,
  split_by_class,
)
from fedjax_pfl.analysis import open_run
from fedjax_pfl.analysis.open_run import load_states
from fedjax_pfl.data.client_data import label_counts_of_clients
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import replace, to_config

pytestmark = pytest.mark.usefixtures('quick_compiler')


def opened(tiny_run):
  experiment, workdir = tiny_run
  return OpenRun('fedbabu', workdir, experiment.settings, experiment)


@pytest.fixture
def ask(tiny_run, tmp_path, monkeypatch):
  """Return number of clients -> the rows of the CSV, and what was logged."""
  workdir = tiny_run[1]
  monkeypatch.setattr(id_ood, 'open_runs', lambda *given: [opened(tiny_run)])

  def files():
    return {p: p.read_bytes() for p in workdir.rglob('*') if p.is_file()}

  def ask(clients):
    logged, before, out = [], files(), tmp_path / 'a.pdf'
    assert id_ood.analyse([workdir], out, clients, logged.append, None) == out
    assert files() == before  # runs are read only
    assert out.read_bytes().startswith(b'%PDF')
    return read_rows(out.with_suffix('.csv')), '\n'.join(logged)

  return ask


def test_id_ood(ask, tiny_run):
  rows, logged = ask(3)
  stored = run_dir.load_clients(tiny_run[1]).scores
  for view in ('initial', 'finetuned'):
    own = [float(r['own_percent']) for r in rows if r['view'] == view]
    assert own == pytest.approx(accuracies(stored[view])[:3], abs=1e-3)
  assert {row['other_percent'] for row in rows} == {''}
  assert 'FedBABU: 3 of 3 clients have no test image of all other' in logged


def test_a_run_that_is_not_there(tmp_path):
  given = [tmp_path / 'b'], tmp_path / 'a.png', 0, print, None
  assert 'expected a run directory that holds' in refused(
    id_ood.analyse, *given
  )
  assert not (tmp_path / 'a.png').exists()


# ---- from the directory to the experiment


def test_data_have_to_be_those_of_the_run(tiny_run, tmp_path):
  experiment, _ = tiny_run
  want, config = experiment.data_id, to_config(experiment.settings)

  def opened(data, edit=None):
    record = {'config': config, 'data': data}
    (tmp_path / 'config.json').write_text(json.dumps(record))
    (run,) = open_runs([str(tmp_path)], logged.append, edit)
    return run

  logged = []
  del config['clients_per_chunk']  # begun before there was this field
  assert opened(want).experiment.data_id == want
  assert "  clients_per_chunk='auto'" in logged
  other = opened(want, lambda config: config.update(shards_per_client=4))
  assert other.settings.data.shards_per_client == 4
  assert other.experiment.data_id != want
  move = lambda config: config.update(data_dir='there')
  moved, _ = open_run.read_run(tmp_path, print, move, moved=True)
  assert moved.data.data_dir == 'there'
  reseed = lambda config: config.update(seed=5)
  message = refused(open_run.read_run, tmp_path, print, reseed, True)
  assert message.startswith('seed: got 5, expected 0, with which ')
  message = refused(opened, 'another')
  assert f"data: got '{want}', expected the fingerprint of the run" in message


def test_states_are_those_of_the_last_round(tiny_run, tmp_path):
  experiment, workdir = tiny_run
  server, clients = load_states(experiment, workdir, pytest.fail)
  assert server.round == 3 and clients == ()
  stored, _ = load_model(workdir / 'model' / 'global.npz')
  assert_same_bits(server.params, stored)
  copy = tmp_path / 'copy'
  shutil.copytree(workdir, copy)
  shutil.rmtree(copy / 'checkpoints' / '3')
  saved = refused(load_states, experiment, copy, print)
  assert "round 2 saved', expected the checkpoint after its last" in saved


# ---- own and other classes


def test_every_test_image_is_on_one_side(tiny_run):
  """One test set and one model for all: the two sides have all its hits."""
  experiment, workdir = tiny_run
  everything = experiment.test._replace(
    index=jnp.tile(jnp.arange(40), (10, 1)), count=jnp.full(10, 40)
  )
  settings = replace(experiment.settings, views=('finetuned', 'initial'))
  whole = experiment.with_settings(settings).with_data(test=everything)
  splits = measure(opened((whole, workdir)), 0, print)
  assert [*splits] == ['initial', 'finetuned']  # before, after
  split = splits['initial']
  y = np.asarray(experiment.test.y)[:40]
  held = label_counts_of_clients(experiment.train, 10)
  own = (held > 0)[:, y].sum(1)  # [K] images
  hits = (split.own * own + split.other * (40 - own)) / 100
  server, _ = load_states(experiment, workdir, print)
  task, tests = experiment.task, client_of(everything, 0)
  score = jax.jit(score_view, static_argnums=(0, 3))(
    task.logits, server.params, tests, task.normalise
  )
  assert 0 < score.correct < 40
  np.testing.assert_allclose(hits, np.full(10, score.correct))
  assert split.own.min() < split.own.max()


def test_the_tests_on_which_clients_adapt_are_not_scored(tiny_run):
  """Per-FedAvg adapts on half of a client's tests, as the run did."""
  experiment, workdir = tiny_run
  states = load_states(experiment, workdir, print)
  settings = replace(experiment.settings, adapt_on='test_half')
  halved = experiment.with_settings(settings)
  split = split_by_class(halved, states, ('initial',), 'tests')['initial']
  query = np.asarray(halved.eval_data[1].count)
  other = halved._replace(data=halved.data._replace(data_id='other-tests'))
  run = OpenRun('fedavg', workdir, settings, other)
  assert 'adapt_on: got ' in refused(check_own_halves, run)
  assert (query < np.asarray(experiment.test.count)).any()
  np.testing.assert_array_equal(split.own.count + split.other.count, query)
