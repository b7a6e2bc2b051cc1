"""What the clients hold, as numbers, as a picture and as a file."""

import csv
import functools
import runpy
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from absl import flags
from matplotlib.figure import Figure

from experiments import commandline
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.report import partition_figure

ROOT = Path(__file__).parents[2]
COUNTS = np.array([[8, 0, 2], [0, 0, 0], [0, 4, 0]])


def make_axis(counts):
  return partition_figure.plot_class_counts(Figure().subplots(), counts)


def test_counts_by_hand_padding_not_among_them():
  y = jnp.array([2, 0, 0, 1, 2])
  index = jnp.array([[1, 2, 4], [3, 1, 1], [1, 1, 1]])
  data = ClientData(jnp.zeros((5, 1)), y, index, jnp.array([3, 1, 0]))
  got = label_counts_of_clients(data, 4)
  assert got.tolist() == [[2, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_few_clients_are_bubbles_whose_areas_are_the_counts():
  ax = make_axis(100 * COUNTS)
  (bubbles,) = ax.collections
  assert bubbles.get_offsets().tolist() == [[0, 0], [0, 2], [2, 1]]
  areas = bubbles.get_sizes()
  np.testing.assert_allclose(areas / areas[0], [1, 0.25, 0.5])
  assert ax.get_xlabel() == (
    'client   area: examples, 800 in the largest   triangle: no example'
  )
  (empty,) = ax.lines
  assert empty.get_xdata().tolist() == [1]


def test_many_clients_are_a_map_in_which_none_is_white_and_one_is_not():
  counts = np.zeros((40, 3), int)
  counts[:, 0], counts[5, 2], counts[6, 2] = 900, 1, 100
  ax = make_axis(counts)
  (image,) = ax.images
  shown = image.get_array()  # [Y, K]
  np.testing.assert_array_equal(shown.filled(0), counts.T)
  assert shown.mask.sum() == (counts == 0).sum()
  reds = [image.to_rgba(shown)[2, k, 0] for k in (5, 6)]
  assert reds[1] < reds[0] < 0.9
  assert not ax.lines and ax.get_xlabel() == 'client'


def test_sizes_in_words():
  words = 'examples a client'
  assert (
    partition_figure.describe_sizes(COUNTS) == f'0 to 10 {words} (1 have none)'
  )
  assert partition_figure.describe_sizes(COUNTS[:1] * 200) == f'2,000 {words}'


def test_only_pictures_of_one_kind(tmp_path):
  with pytest.raises(BadInput, match=r'output: got .*Choices: \S*x\.png'):
    partition_figure.save([], tmp_path / 'x.pdf')


@pytest.fixture
def command(monkeypatch):
  """Return the command as a function of its arguments; its flags are its own.

  Not a process: to start one takes longer than all that is tested.
  """
  values = flags.FlagValues()
  define = functools.partial(flags.DEFINE_string, flag_values=values)
  monkeypatch.setattr(flags, 'DEFINE_string', define)
  monkeypatch.setattr(flags, 'FLAGS', values)
  file = ROOT / 'experiments' / 'draw_partition.py'
  main = runpy.run_path(str(file))['main']
  return lambda *arguments: main(
    commandline.parse_flags(
      [str(file), *arguments], required=['config', 'output']
    )
  )


def test_the_command_draws_a_row_for_each_value(command, tmp_path, capsys):
  picture = tmp_path / 'new' / 'x.png'
  command(
    f'--config={ROOT}/configs/digits.py:fedbabu',
    '--config.partition=dirichlet',
    '--vary=dirichlet_beta=1.0,0.02',
    f'--output={picture}',
  )
  lines = capsys.readouterr().out.splitlines()
  assert lines[-1] == f'Figure: {picture}'
  assert 'digits, testing: 20 clients' in lines[1] and 'padding' in lines[1]
  assert any('Clients without training' in line for line in lines)
  names = sorted(path.name for path in tmp_path.rglob('*') if path.is_file())
  assert names == ['x.csv', 'x.png']
  assert picture.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  with open(picture.with_suffix('.csv'), newline='') as stream:
    rows = list(csv.DictReader(stream))
  for label in (
    'dirichlet, dirichlet_beta=1.0',
    'dirichlet, dirichlet_beta=0.02',
  ):
    for split, size in (('training', 1442), ('testing', 355)):
      held = [
        int(row['examples'])
        for row in rows
        if row['partition'] == label and row['split'] == split
      ]
      assert sum(held) == size and min(held) > 0


@pytest.mark.parametrize(
  ('argument', 'words'),
  [
    ('--output=x.pdf', 'a name that ends in .png'),
    (
      '--vary=dirichlet_beta=0.5,0',
      'beta: got 0.0, expected a finite number above 0',
    ),
    ('--vary=shards_per_cleint=2,4', '(did you mean shards_per_client?)'),
  ],
)
def test_mistakes_leave_no_file(command, tmp_path, argument, words):
  with pytest.raises(BadInput) as caught:
    command(
      f'--config={ROOT}/configs/digits.py:fedbabu',
      '--config.partition=dirichlet',
      f'--output={tmp_path}/x.png',
      argument,
    )
  assert words in str(caught.value)
  assert not [*tmp_path.iterdir()]
