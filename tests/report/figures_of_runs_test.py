"""From run directories and partitions to figures, and the numbers behind."""

import csv
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from page_runs import load_command, make_run
from picture_test import words

from experiments import commandline
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.report import overview, partition_figure
from fedjax_pfl.report.finished_runs import read
from fedjax_pfl.runs import checksums, run_dir

MIXTURES = {'initial': [2, 4], 'mix_0.5': [18, 16], 'mix_1.0': [10, 10]}
BEST = {'test_best_view': {'mix': {'together': {'view': 'mix_0.5'}}}}
NOTE = 'mix_0.5 of SuPerFed is chosen by the tests, which is optimistic.'
COUNTS = np.array([[8, 0, 2], [0, 0, 0], [0, 4, 0]])


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


def test_a_number_that_was_not_finite_is_left_out(tmp_path):
  path = make_run(tmp_path / 'a')
  result = run_dir.load_result(path)
  result['views']['initial'] |= {'mean': None, 'std': None}
  result = checksums.with_checksums(result, tmp_path / 'a' / 'clients.npz')
  (tmp_path / 'a' / 'result.json').write_text(json.dumps(result))
  before, after, _ = overview.numbers(read(path))
  assert math.isnan(before) and after == 67.5


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


# ---- examples by client and class


def test_counts_by_hand_padding_not_among_them():
  y = jnp.array([2, 0, 0, 1, 2])
  index = jnp.array([[1, 2, 4], [3, 1, 1], [1, 1, 1]])
  data = ClientData(jnp.zeros((5, 1)), y, index, jnp.array([3, 1, 0]))
  got = label_counts_of_clients(data, 4)
  assert got.tolist() == [[2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_a_row_for_each_partition(tmp_path):
  many = np.ones((3400, 3), int)
  parts = [partition_figure.Part('a', COUNTS, COUNTS[::-1] * 2)]
  parts.append(partition_figure.Part('b', many, many))
  shown = words(partition_figure.draw(parts))
  titles = [one for one in shown if one[:3] in ('a, ', 'b, ')]
  assert titles == ['a, training', 'a, testing', 'b, training', 'b, testing']
  assert '0 to 20 examples a client (1 have none). Largest dot: 16.' in shown
  assert any('Drawn: 120 of 3,400 clients' in one for one in shown)
  out = partition_figure.save(parts[:1], tmp_path / 'x.png')
  rows = [' '.join(row.values()) for row in read_csv(out.with_suffix('.csv'))]
  assert rows[:3] == [
    'a training 0 0 8',
    'a training 0 2 2',
    'a training 2 1 4',
  ]
  assert len(rows) == 6


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
  assert 'digits, testing: 20 clients' in lines[1] and 'padding' in lines[1]
  assert any('Clients without training' in line for line in lines)
  names = sorted(path.name for path in tmp_path.rglob('*') if path.is_file())
  assert names == ['x.csv', 'x.png']
  assert picture.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  held: dict[tuple[str, str], int] = {}
  for row in read_csv(picture.with_suffix('.csv')):
    place = row['partition'], row['split']
    held[place] = held.get(place, 0) + int(row['examples'])
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
