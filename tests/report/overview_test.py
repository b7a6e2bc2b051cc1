"""From result.json of several runs to one line a method."""

import csv
import math

import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.report.overview import read_gain, save_overview
from fedjax_pfl.runs import run_dir


def make_result(algorithm, dataset='digits', **means):
  views = {
    view: {'mean': mean, 'std': 1.0, 'worst_decile': mean - 10}
    for view, mean in means.items()
  }
  return {'algorithm': algorithm, 'dataset': dataset, 'views': views}


def make_run(path, *args, **means):
  run = run_dir.open_run(path, {'algorithm': args[0]}, data='digits')
  run.write_clients({}, ids=[0], train_count=[1])
  run.write_result(rounds=1, seconds=1.0, **make_result(*args, **means))
  run.close()
  return path


def test_gain_goes_from_the_first_view_to_the_last():
  gain = read_gain(make_result('fedavg', initial=20, other=90, finetuned=70))
  assert gain == ('fedavg', 20, 70, 60, '')


def test_one_view_has_no_before():
  gain = read_gain(make_result('local_only', personal=80.0))
  assert gain.before != gain.before  # NaN
  assert gain[2:4] == (80, 70)


def test_of_mixtures_the_best_on_the_tests_is_after():
  """The last is the client's own model alone."""
  result = make_result('superfed', initial=50, **{'mix_0.5': 80, 'mix_1.0': 60})
  result['test_best_view'] = {'mix': {'together': {'view': 'mix_0.5'}}}
  gain = read_gain(result)
  assert gain[:4] == ('superfed', 50, 80, 70)
  assert gain.note == (
    'mix_0.5 of SuPerFed is chosen by the tests, which is optimistic.'
  )


def test_the_best_method_is_on_top(tmp_path):
  runs = [
    make_run(tmp_path / 'a', 'fedavg', initial=20.0, finetuned=70.0),
    make_run(tmp_path / 'b', 'fedbabu', initial=30.0, finetuned=80.0),
    make_run(tmp_path / 'c', 'local_only', personal=75.0),
  ]
  out = save_overview(runs, tmp_path / 'methods.png')
  assert out.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  with open(out.with_suffix('.csv'), newline='') as stream:
    rows = list(csv.reader(stream))
  assert rows[1:] == [
    ['fedbabu', '30.0000', '80.0000', '70.0000'],
    ['local_only', '', '75.0000', '65.0000'],
    ['fedavg', '20.0000', '70.0000', '60.0000'],
  ]


def test_a_method_without_a_finite_mean_is_the_last(tmp_path):
  runs = [make_run(tmp_path / 'a', 'fedavg', initial=20.0, finetuned=math.nan)]
  runs.append(make_run(tmp_path / 'b', 'fedper', initial=20.0, finetuned=70.0))
  out = save_overview(runs, tmp_path / 'methods.png')
  with open(out.with_suffix('.csv'), newline='') as stream:
    rows = list(csv.reader(stream))
  assert [row[0] for row in rows[1:]] == ['fedper', 'fedavg']
  assert rows[2] == ['fedavg', '20.0000', '', '']


def test_runs_on_two_datasets_are_refused(tmp_path):
  runs = [
    make_run(tmp_path / name, 'fedavg', name, initial=1.0)
    for name in ('digits', 'cifar10')
  ]
  with pytest.raises(BadInput, match='cifar10'):
    save_overview(runs, tmp_path / 'methods.png')
