"""Analyses of runs, from their directories to a figure and a CSV."""

import csv
import json
import shutil

import numpy as np
import pytest
from conftest import make_experiment
from helpers import assert_same_bits, refused

from configs import common
from fedjax_pfl.analysis import analyse, training_curves
from fedjax_pfl.analysis.open_run import (
  OpenRun,
  Options,
  load_global,
  load_states,
  open_runs,
)
from fedjax_pfl.report.charts import picture
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.settings import to_config

pytestmark = pytest.mark.usefixtures('quick_compiler')
OPTIONS = Options(clients=3, images=40)


@pytest.fixture
def ask(tiny_run):
  """Return (question, options) -> the rows of the CSV, and what was logged."""
  experiment, workdir = tiny_run

  def files():
    return {p: p.read_bytes() for p in workdir.rglob('*') if p.is_file()}

  def ask(what, **changes):
    run = OpenRun('fedbabu', workdir, experiment.settings, experiment)
    logged, before, question = [], files(), analyse.QUESTIONS[what]
    options = OPTIONS._replace(**changes)
    found = question.answer([run], options, logged.append)
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


# ---- the command, on metrics alone


def make_run(path, part, kernel=None):
  path.mkdir(parents=True)
  config = common.base(local_epochs=2).to_dict()
  # Begun before there were these fields.
  del config['clients_per_chunk'], config['finetune']['trainable']
  record = {'config': config, 'data': 'none'}
  (path / 'config.json').write_text(json.dumps(record))
  lines = [{'round': at, 'initial/accuracy': at * part} for at in (1, 2, 3)]
  lines.append({'round': 4, 'initial/accuracy': None})
  text = ''.join(f'{json.dumps(line)}\n' for line in lines)
  (path / 'metrics.jsonl').write_text(text)
  if kernel is not None:
    (path / 'model').mkdir()
    save_model(path / 'model' / 'global.npz', {'head': {'kernel': kernel}}, {})
  return str(path)


def test_training_curves_of_two_runs_of_one_method(tmp_path):
  kernel = np.array([[1.0, 1], [0, 1]])
  full = make_run(tmp_path / 'full', 10.0, kernel)
  runs, logged = [full, make_run(tmp_path / 'body', 5.0)], []
  put = 'training', runs, str(tmp_path / 'a.pdf'), Options(), logged.append
  out = analyse.analyse(*put)
  assert out.read_bytes().startswith(b'%PDF')
  with open(out.with_suffix('.csv'), newline='') as stream:
    header, *rows = csv.reader(stream)
  assert header == [*training_curves.HEADER]
  assert rows[0] == ['fedavg (full)', '0.7071', '2', '10.0000']
  assert [row[:2] for row in rows[3:]] == [['fedavg (body)', '']] * 3
  assert "  finetune.trainable='full', clients_per_chunk='auto'" in logged


def test_the_rows_of_a_head_that_is_alike():
  """U(0.45, 0.55) of the paper: m^2 / (m^2 + s^2) = 0.9967."""
  kernel = np.random.default_rng(0).uniform(0.45, 0.55, (1024, 100))
  cosine = training_curves.head_row_cosine({'head': {'kernel': kernel}})
  assert cosine == pytest.approx(0.9967, abs=1e-4)


def test_bad_questions(tmp_path):
  def put(what='training', run='a', output='a.png'):
    runs, out = [str(tmp_path / run)], str(tmp_path / output)
    return refused(lambda: analyse.analyse(what, runs, out, Options(), print))

  make_run(tmp_path / 'a', 1.0)
  assert put(what='tsne').startswith("what: got 'tsne', expected a known anal")
  assert 'expected a run directory that holds config.json' in put(run='b')
  (tmp_path / 'a' / 'metrics.jsonl').write_text('{"round": 1, "loss": 2.0}\n')
  assert 'without a value of initial/accuracy' in put()
  assert not (tmp_path / 'a.png').exists()


# ---- from the directory to the experiment


def test_data_have_to_be_those_of_the_run(tmp_path):
  settings = make_experiment()
  want, config = settings.data_id, to_config(settings.settings)

  def opened(data, edit=None):
    record = {'config': config, 'data': data}
    (tmp_path / 'config.json').write_text(json.dumps(record))
    (run,) = open_runs([str(tmp_path)], logged.append, edit, with_data=True)
    return run

  logged = []
  assert opened(want).experiment.data_id == want
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
