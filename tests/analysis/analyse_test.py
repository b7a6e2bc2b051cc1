"""Analyses of runs, from their directories to a figure and a CSV."""

import csv
import json
import shutil

import numpy as np
import pytest
from conftest import make_experiment
from helpers import assert_same_bits, refused

from fedjax_pfl.analysis import id_ood, open_run
from fedjax_pfl.analysis.open_run import OpenRun, load_states, open_runs
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.settings import to_config

pytestmark = pytest.mark.usefixtures('quick_compiler')


def opened(tiny_run):
  experiment, workdir = tiny_run
  return OpenRun('fedbabu', workdir, experiment.settings, experiment)


@pytest.fixture
def ask(tiny_run, tmp_path, monkeypatch):
  """Return number of clients -> the rows of the CSV, and what was logged."""
  workdir = tiny_run[1]
  monkeypatch.setattr(open_run, 'open_runs', lambda *given: [opened(tiny_run)])

  def files():
    return {p: p.read_bytes() for p in workdir.rglob('*') if p.is_file()}

  def ask(clients):
    logged, before, out = [], files(), tmp_path / 'a.pdf'
    assert id_ood.analyse([workdir], out, clients, logged.append) == out
    assert files() == before  # runs are read only
    assert out.read_bytes().startswith(b'%PDF')
    with open(out.with_suffix('.csv'), newline='') as stream:
      rows = list(csv.DictReader(stream))
    return rows, '\n'.join(logged)

  return ask


def test_id_ood(ask, tiny_run):
  rows, logged = ask(0)
  result = run_dir.load_result(tiny_run[1])['views']
  for view in ('initial', 'finetuned'):
    own = [float(r['own_percent']) for r in rows if r['view'] == view]
    assert len(own) == 10
    mean, std = result[view]['mean'], result[view]['std']
    assert np.mean(own) == pytest.approx(mean, abs=1e-3)
    assert f'{mean:.1f} ± {std:4.1f}' in logged
  assert {row['other_percent'] for row in rows} == {''}
  assert 'FedBABU: 10 of 10 clients have no test image of all other' in logged
  few, _ = ask(3)
  assert few == [row for row in rows if int(row['client']) < 3]


def test_a_run_that_is_not_there(tmp_path):
  given = [tmp_path / 'b'], tmp_path / 'a.png', 0, print
  assert 'expected a run directory that holds' in refused(
    id_ood.analyse, *given
  )
  assert not (tmp_path / 'a.png').exists()


# ---- from the directory to the experiment


def test_data_have_to_be_those_of_the_run(tmp_path):
  settings = make_experiment()
  want, config = settings.data_id, to_config(settings.settings)

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
