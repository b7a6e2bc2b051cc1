"""From run directories and partitions to figures, and the numbers behind."""

import csv
import math
from collections import Counter

import pytest
from page_runs import load_command, make_run
from picture_test import words

from experiments import commandline
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.report import overview
from fedjax_pfl.report.finished_runs import read
from fedjax_pfl.runs import run_dir

MIXTURES = {'initial': [2, 4], 'mix_0.5': [18, 16], 'mix_1.0': [10, 10]}
BEST = {'test_best_view': {'mix': {'together': {'view': 'mix_0.5'}}}}
NOTE = 'mix_0.5 of SuPerFed is chosen by the tests, which is optimistic.'


def read_csv(path):
  with open(path, newline='') as stream:
    return list(csv.DictReader(stream))


def test_the_best_method_is_on_top(tmp_path):
  """One view has no before; without a finite mean a method is the last."""
  views = {
    'fedavg': {'initial': [4], 'other': [18], 'finetuned': [14]},
    'fedbabu': {'initial': [6], 'finetuned': [16]},
    'local_only': {'personal': [15]},
    'superfed': MIXTURES,
  }
  runs = [
    make_run(tmp_path / name, name, views=one, classes=None, more=BEST)
    for name, one in views.items()
  ]
  runs += [make_run(tmp_path / 'empty', 'fedper', tests=0), runs[0]]
  out = overview.save_overview(runs, tmp_path / 'new' / 'methods.png')
  assert out.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  rows = [[*row.values()] for row in read_csv(out.with_suffix('.csv'))]
  assert rows == [
    # Of mixtures the last is the client's own model alone.
    ['superfed', '15.0000', '85.0000', '80.0000'],
    ['fedbabu', '30.0000', '80.0000', '80.0000'],
    ['local_only', '', '75.0000', '75.0000'],
    ['fedavg', '20.0000', '70.0000', '70.0000'],
    ['fedper', '', '', ''],
  ]
  shown = words(overview.draw([read(one) for one in runs[2:4]]))
  assert NOTE in shown and 'Personalisation on digits' in shown
  assert shown[shown.index('Local only') + 1] == '75.0'
  run = read(runs[1])
  run.result['views']['initial'] |= {'mean': None, 'std': None}  # not finite
  before, after, _ = overview.numbers(run)
  assert math.isnan(before) and after == 80


def test_runs_that_cannot_be_compared(tmp_path):
  one = make_run(tmp_path / 'a')
  other = make_run(tmp_path / 'b', dataset='cifar10')
  run_dir.open_run(tmp_path / 'begun', {}, data='digits')
  for runs, message in (
    ([one, other], 'expected one or more runs on one dataset'),
    ([], r'got \{\}'),
    ([tmp_path / 'begun'], r'holds result\.json'),
  ):
    with pytest.raises(BadInput, match=message):
      overview.save_overview(runs, tmp_path / 'figure.png')
  assert not (tmp_path / 'figure.png').exists()


# ---- the command that draws a partition


@pytest.fixture
def command(monkeypatch):
  """Return the command as a function of its arguments."""
  main, file = load_command(monkeypatch, 'draw_partition.py')
  given = f'--config={commandline.ROOT}/configs/digits.py:fedbabu'
  words = [file, given, '--config.partition=dirichlet']
  return lambda *more: main(
    commandline.parse_flags([*words, *more], required=['config', 'output'])
  )


def test_the_command_draws_a_row_for_each_value(command, tmp_path, capsys):
  picture = tmp_path / 'new' / 'x.png'
  command('--vary=dirichlet_beta=1.0,0.02', f'--output={picture}')
  lines = capsys.readouterr().out.splitlines()
  assert lines[-1] == f'Figure: {picture}'
  assert any('Clients without training' in line for line in lines)
  names = sorted(path.name for path in tmp_path.rglob('*') if path.is_file())
  assert names == ['x.csv', 'x.png']
  assert picture.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  held = Counter()
  for row in read_csv(picture.with_suffix('.csv')):
    held[row['partition'], row['split']] += int(row['examples'])
  assert held == {
    (f'dirichlet, dirichlet_beta={beta}', split): size
    for beta in ('1.0', '0.02')
    for split, size in (('training', 1442), ('testing', 355))
  }


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--output=x.pdf', 'a name that ends in .png'),
    ('--vary=dirichlet_beta=0.5,0', 'beta: got 0.0, expected a number above 0'),
    ('--vary=shards_per_cleint=2,4', '(did you mean shards_per_client?)'),
  ],
)
def test_mistakes_leave_no_file(command, tmp_path, argument, message):
  with pytest.raises(BadInput) as caught:
    command(f'--output={tmp_path}/x.png', argument)
  assert message in str(caught.value)
  assert not [*tmp_path.iterdir()]
