"""Analyses of runs, from their directories to a figure and a CSV."""

import csv
import json
import shutil

import numpy as np
import pytest
from conftest import make_experiment
from helpers import assert_same_bits, refused

from fedjax_pfl.analysis import analyse
from fedjax_pfl.analysis.open_run import (
  OpenRun,
  Options,
  load_global,
  load_states,
  open_runs,
)
from fedjax_pfl.report.charts import picture
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import to_config

pytestmark = pytest.mark.usefixtures('quick_compiler')
OPTIONS = Options(clients=3, images=40)


def opened(tiny_run):
  experiment, workdir = tiny_run
  return OpenRun('fedbabu', workdir, experiment.settings, experiment)


@pytest.fixture
def ask(tiny_run):
  """Return (question, options) -> the rows of the CSV, and what was logged."""
  workdir = tiny_run[1]

  def files():
    return {p: p.read_bytes() for p in workdir.rglob('*') if p.is_file()}

  def ask(what, **changes):
    logged, before, question = [], files(), analyse.QUESTIONS[what]
    options = OPTIONS._replace(**changes)
    found = question.answer([opened(tiny_run)], options, logged.append)
    assert files() == before  # runs are read only
    assert picture.draw('', found.panels, found.colours, notes=found.notes)
    rows = [dict(zip(question.HEADER, row, strict=True)) for row in found.rows]
    return rows, '\n'.join([*logged, found.text])

  return ask


# ---- questions


def test_id_ood(ask, tiny_run):
  rows, logged = ask('id_ood', clients=0)
  result = run_dir.load_result(tiny_run[1])['views']
  for view in ('initial', 'finetuned'):
    own = [float(r['own_percent']) for r in rows if r['view'] == view]
    assert len(own) == 10
    mean, std = result[view]['mean'], result[view]['std']
    assert np.mean(own) == pytest.approx(mean, abs=1e-3)
    assert f'{mean:.1f} ± {std:4.1f}' in logged
  assert {row['other_percent'] for row in rows} == {''}
  assert 'FedBABU: 10 of 10 clients have no test image of all other' in logged
  few, _ = ask('id_ood')
  assert few == [row for row in rows if row['client'] < 3]


def test_features(ask):
  rows, logged = ask('features', classes=('3', '5'))
  assert {row['class'] for row in rows} == {3, 5}
  assert f'a map of {len(rows)} images' in logged


def test_options_that_ask_for_nothing(ask):
  message = refused(lambda: ask('features', classes=('3',), images=1))
  assert "got '0 of these classes among 1 test images'" in message


# ---- the command


def test_the_command_saves_a_figure_and_its_numbers(tiny_run, tmp_path):
  runs, out = [str(tiny_run[1])], tmp_path / 'a.pdf'
  with pytest.MonkeyPatch.context() as patched:
    patched.setattr(analyse, 'open_runs', lambda *given: [opened(tiny_run)])
    assert analyse.analyse('id_ood', runs, str(out), OPTIONS, print) == out
  assert out.read_bytes().startswith(b'%PDF')
  with open(out.with_suffix('.csv'), newline='') as stream:
    header, first, *_ = csv.reader(stream)
  assert header == [*analyse.QUESTIONS['id_ood'].HEADER]
  assert first[0] == 'fedbabu'


def test_bad_questions(tmp_path):
  def put(what='id_ood', run='a', output='a.png'):
    runs, out = [str(tmp_path / run)], str(tmp_path / output)
    return refused(lambda: analyse.analyse(what, runs, out, Options(), print))

  assert put(what='tsne').startswith("what: got 'tsne', expected a known anal")
  assert 'expected a run directory that holds config.json' in put(run='b')
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
  assert_same_bits(server.params, load_global(experiment.task, workdir))
  copy = tmp_path / 'copy'
  shutil.copytree(workdir, copy)
  shutil.rmtree(copy / 'checkpoints' / '3')
  saved = refused(load_states, experiment, copy, print)
  assert "round 2 saved', expected the checkpoint after its last" in saved
  (copy / 'model' / 'global.npz').unlink()
  message = refused(load_global, experiment.task, copy)
  assert 'or a run that is not finished' in message
