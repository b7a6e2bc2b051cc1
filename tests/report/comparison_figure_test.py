"""From run directories to a picture, and the numbers behind it."""

import csv
import json
import sys

import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation import summary
from fedjax_pfl.report import comparison_figure, plots
from fedjax_pfl.runs import checksums, run_dir


def make_run(path, algorithm='fedavg', dataset='digits', **more):
  run = run_dir.open_run(path, {'algorithm': algorithm}, data=dataset)
  views = {
    view: Scores(np.array(correct), np.full(4, 10), np.zeros(4))
    for view, correct in {
      'initial': [1, 2, 3, 4],
      'finetuned': [6, 7, 8, 9],
      **more,
    }.items()
  }
  for at, accuracy in ((0, 0.0), (2, 20.5), (4, 25.0)):
    run.log(round=at, **{'initial/accuracy': accuracy})
    run.log(round=at, loss=1.0)
  run.write_clients(views, ids=[3, 5, 7, 9], train_count=[50] * 4)
  run.write_result(
    algorithm=algorithm,
    dataset=dataset,
    rounds=4,
    seconds=1.0,
    views={view: summary.summarise(scores) for view, scores in views.items()},
  )
  run.close()
  return path


def read_csv(path):
  with open(path, newline='') as stream:
    return list(csv.DictReader(stream))


def test_two_runs_make_a_picture_and_its_numbers(tmp_path):
  runs = [make_run(tmp_path / name, name) for name in ('fedavg', 'fedbabu')]
  had_pyplot = 'matplotlib.pyplot' in sys.modules
  out = comparison_figure.compare(runs, tmp_path / 'new' / 'figure.png')
  assert out.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  # pyplot has global state, and opens windows.
  assert ('matplotlib.pyplot' in sys.modules) == had_pyplot
  rows = read_csv(out.with_suffix('.csv'))
  assert {row['run'] for row in rows} == {'fedavg', 'fedbabu'}
  mine = [row for row in rows if row['run'] == 'fedbabu']
  curve = [row for row in mine if row['quantity'] == 'round']
  assert [(row['at'], row['percent']) for row in curve] == [
    ('0', '0.0000'),
    ('2', '20.5000'),
    ('4', '25.0000'),
  ]
  clients = [row for row in mine if row['quantity'] == 'client']
  assert len(clients) == 2 * 4
  assert clients[-1]['at'] == '9' and clients[-1]['percent'] == '90.0000'
  (mean,) = (
    row
    for row in mine
    if row['quantity'] == 'mean' and row['view'] == 'finetuned'
  )
  assert mean['percent'] == '75.0000'


def test_two_runs_of_one_method_are_told_apart(tmp_path):
  runs = [make_run(tmp_path / name) for name in ('a', 'b')]
  out = comparison_figure.compare(runs, tmp_path / 'figure.png')
  rows = read_csv(out.with_suffix('.csv'))
  assert {row['run'] for row in rows} == {'fedavg (a)', 'fedavg (b)'}


def test_two_folders_of_one_name_are_told_apart_and_one_is_shown_once(tmp_path):
  runs = [make_run(tmp_path / name / 'run') for name in ('a', 'b')]
  again = tmp_path / 'a' / '..' / 'a' / 'run'
  out = comparison_figure.compare([*runs, again], tmp_path / 'figure.png')
  means = [
    row['run']
    for row in read_csv(out.with_suffix('.csv'))
    if (row['quantity'], row['view']) == ('mean', 'initial')
  ]
  assert means == ['fedavg (a/run)', 'fedavg (b/run)']


def test_a_method_of_mixtures_is_shown_with_the_best_on_the_tests(tmp_path):
  mixtures = {'mix_0.5': [9, 9, 9, 9], 'mix_1.0': [5, 5, 5, 5]}
  path = make_run(tmp_path / 'a', **mixtures)
  result = run_dir.load_result(path)
  result['test_best_view'] = {'mix': {'together': {'view': 'mix_0.5'}}}
  clients = run_dir.load_clients(path)
  curve = plots.Curve(np.arange(2), np.ones(2))
  run = comparison_figure.ShownRun('superfed', result, curve, clients)
  figure = comparison_figure.draw([run])
  shown = [text.get_text() for text in figure.legends[0].get_texts()]
  assert shown[1:3] == ['initial', 'mix_0.5']
  note = figure.legends[0].get_title().get_text()
  assert note.startswith('mix_0.5 of SuPerFed is chosen by the tests')


def test_numbers_that_were_not_finite_are_left_out(tmp_path):
  path = make_run(tmp_path / 'a')
  result = run_dir.load_result(path)
  result['views']['initial'] |= {'mean': None, 'std': None}
  result = checksums.with_checksums(result, path / 'clients.npz')
  (path / 'result.json').write_text(json.dumps(result))
  out = comparison_figure.compare([path], tmp_path / 'figure.png')
  rows = read_csv(out.with_suffix('.csv'))
  (mean,) = (
    row
    for row in rows
    if row['quantity'] == 'mean' and row['view'] == 'initial'
  )
  assert mean['percent'] == 'nan'


def test_runs_that_cannot_be_compared(tmp_path):
  one = make_run(tmp_path / 'a')
  other = make_run(tmp_path / 'b', dataset='cifar10')
  with pytest.raises(
    BadInput, match='expected one or more runs on one dataset'
  ):
    comparison_figure.compare([one, other], tmp_path / 'figure.png')
  with pytest.raises(BadInput, match=r'got \{\}'):
    comparison_figure.compare([], tmp_path / 'figure.png')
  assert not (tmp_path / 'figure.png').exists()


def test_a_run_that_was_never_evaluated(tmp_path):
  path = make_run(tmp_path / 'a')
  (path / 'metrics.jsonl').write_text('{"round": 1, "loss": 2.0}\n')
  with pytest.raises(BadInput) as caught:
    comparison_figure.compare([path], tmp_path / 'figure.png')
  assert 'without a value of initial/accuracy' in str(caught.value)
  assert 'Choices: loss, round' in str(caught.value)


def test_a_run_that_is_not_finished(tmp_path):
  run_dir.open_run(tmp_path / 'a', {}, data='digits')
  with pytest.raises(BadInput, match=r'holds result\.json'):
    comparison_figure.compare([tmp_path / 'a'], tmp_path / 'figure.png')
