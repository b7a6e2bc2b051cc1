"""Runs whose labels are no classes: lower may be better, in every number."""

import numpy as np
import pytest
from helpers import refused

import fedjax_pfl as pfl
from fedjax_pfl.analysis.open_run import read_run
from fedjax_pfl.evaluation.choices import best_views
from fedjax_pfl.results.runs import run as runs
from fedjax_pfl.results.runs.entry import METHOD, Choice, read_entry
from fedjax_pfl.results.runs.run import extremes, read
from fedjax_pfl.results.tables.result_table import table
from fedjax_pfl.runs.run_dir import load_metrics


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  """Return a table of three sites, of which `b` has a higher level."""
  rng = np.random.default_rng(0)
  rows, number = ['x,z,y,time,event,site'], 90
  for row in range(number):
    site, (x, z) = 'abc'[row % 3], rng.normal(size=2).round(4)
    y = 2 * x - z + 4 * (site == 'b')
    time, event = np.exp(-x) * rng.exponential(), int(site != 'c')
    rows.append(f'{x},{z},{y:.4f},{time:.4f},{event},{site}')
  path = tmp_path_factory.mktemp('tables') / 'a.csv'
  path.write_text('\n'.join(rows))
  return str(path)


def run(file, workdir, loss, label, **changes):
  config = {
    **{'dataset': 'table', 'data_dir': file, 'client': 'site', 'loss': loss},
    **{'label': label, 'model': 'linear', 'partition': 'natural'},
    **{'num_clients': 0, 'client_fraction': 1.0, 'rounds': 4, 'batch_size': 8},
    **{'local_epochs': 1, 'learning_rate': 0.05, 'eval_every': 1},
    **{'views': ('initial',), 'lr_milestones': (), **changes},
  }
  experiment = pfl.build_experiment(config)
  return pfl.train(experiment, str(workdir))


def test_a_run_of_numbers_has_the_lowest_error(file, tmp_path, monkeypatch):
  changes = {'validation_fraction': 0.2, 'select': 'validation'}
  changes |= {'metrics': ('rmse', 'r2'), 'eval_global_model': False}
  result = run(file, tmp_path / 'run', 'squared', 'y', **changes)
  stored = read(tmp_path / 'run')
  scores = stored.clients.scores['initial']
  rmse = scores.own['rmse']
  np.testing.assert_allclose(stored.accuracy('initial'), rmse, rtol=1e-5)
  summary = result['views']['initial']
  assert result['measure'] == 'rmse' and summary['mean'] == pytest.approx(
    rmse.mean(), rel=1e-5
  )
  assert summary['lowest_client'] == pytest.approx(rmse.max(), rel=1e-5)
  assert rmse.argmax() == 1
  assert f', b {rmse[1]:.4g}, c ' in extremes(tmp_path / 'run')
  monkeypatch.setattr(runs, 'MOST_NAMED', 2)  # the lowest does worst
  assert f'lowest b ({rmse[1]:.4g}), ' in extremes(tmp_path / 'run')
  assert stored.summary('initial')['lowest_client'] > rmse.min()
  lines = load_metrics(tmp_path / 'run')
  errors = [line['validation/initial'] for line in lines[1:]]
  chosen = result['validation']
  assert chosen['validation_accuracy'] == min(errors) < max(errors)
  assert chosen['round'] == 1 + np.argmin(errors)
  best = result['test_best']['initial']
  means = [line['initial/rmse'] for line in lines]
  assert best['together']['mean'] == pytest.approx(min(means), rel=1e-5)
  assert best['each']['mean'] <= best['together']['mean']
  assert 'exports and predictions' in refused(read_run, tmp_path / 'run', print)
  text = table([result])
  assert 'of RMSE, of which lower is better' in text
  assert f'{summary["mean"]:.4g} ± {summary["std"]:.4g}' in text


def test_a_model_that_diverges_counts(file, tmp_path):
  """Fine-tuning ends in NaN: every client has the worst number, none drops."""
  changes = {'views': ('initial', 'finetuned'), 'validation_fraction': 0.2}
  changes |= {'finetune': {'learning_rate': 1e30, 'batch_size': 8}}
  changes |= {'select': 'validation', 'metrics': ('rmse',)}
  changes |= {'eval_global_model': False}
  result = run(file, tmp_path / 'run', 'squared', 'y', **changes)
  stored = read(tmp_path / 'run')
  assert np.isinf(stored.measured('finetuned')['rmse']).all()
  before, after = (result['views'][x] for x in ('initial', 'finetuned'))
  assert after['mean'] is None and after['rmse_not_finite'] == 3
  assert after['num_left_out'] == 0 and before['mean'] < 10
  # Where no number is finite, the first round is chosen.
  chosen = result['validation']
  assert (chosen['round'], chosen['validation_accuracy']) == (1, None)
  assert 'finetuned -; not finite for clients: 3' in table([result])
  choice, path = Choice({}, 'finetuned', 1.0, ()), [stored.path]
  entry = read_entry('fedavg', METHOD, choice, [0], path, (), ['rmse'])
  assert 'not finite with the chosen setting in 1 of 1 ' in entry.obstacle
  assert entry.after is None


def test_a_client_without_events_is_counted(file, tmp_path):
  result = run(
    file, tmp_path / 'run', 'cox', 'time,event', metrics=('c_index',)
  )
  summary = result['views']['initial']
  assert result['measure'] == 'c_index' and summary['num_left_out'] == 1
  assert summary['num_clients'] == 2 and 0.5 < summary['mean'] <= 1
  # Clients that are left out of the means are in no other count.
  assert 'c_index_undefined' not in summary
  _, first, *_ = load_metrics(tmp_path / 'run')
  assert first['loss'] > 0


def test_a_run_of_bits_has_accuracies(file, tmp_path):
  changes = {'metrics': ('auroc', 'brier'), 'eval_global_model': False}
  result = run(file, tmp_path / 'run', 'logistic', 'event', **changes)
  summary = result['views']['initial']
  assert 'measure' not in result
  correct = read(tmp_path / 'run').clients.scores['initial'].correct
  assert (correct == correct.round()).all() and correct.sum() > 0
  assert summary['auroc_undefined'] == 3 and summary['auroc'] is None
  assert 'auroc: initial -; not defined for clients: 3' in table([result])


def test_of_several_views_that_of_the_lowest_error_is_the_best():
  count, errors = (
    np.array([4, 4]),
    {1: [8.0, 2.0], 2: [4.0, 4.0], 3: [6.0, 1.0]},
  )
  scores = {
    f'mix_{at}': pfl.Scores(np.array(values), count)
    for at, values in errors.items()
  }
  assert best_views(scores, count, -1)['mix']['together']['view'] == 'mix_3'
