"""Tables: what their columns become, and what is refused in a sentence."""

import numpy as np
import pytest
from helpers import refused

import fedjax_pfl as pfl
from fedjax_pfl.data.datasets import load_dataset, peek
from fedjax_pfl.data.fields import table_of
from fedjax_pfl.data.standardise import scale_of
from fedjax_pfl.data.table import features_of
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.keys import make_data_of

HEADER = 'age,ward,fixed,ill,clinic,part'
ROWS = [
  '30,a,1,yes,north,train',
  '50,b,1,no,north,train',
  ',b,1,no,north,train',
  '70,c,1,yes,north,test',
  '20,a,1,yes,clinic10,train',
  '40,a,1,no,clinic10,train',
  '60,,1,no,clinic2,train',
  '80,b,1,yes,clinic2,train',
]


def write(path, *rows, header=HEADER):
  path.write_text('\n'.join([header, *rows]) + '\n')
  return str(path)


@pytest.fixture
def file(tmp_path):
  return write(tmp_path / 'wards.csv', *ROWS)


def columns(loss='cross_entropy', label='ill', client='clinic', split='part'):
  return table_of(label, client, split, loss)


def load(file, *given, log=lambda text: None, **named):
  table = columns(*given, **named)
  return load_dataset('table', data_dir=file, table=table, log_fn=log)


def test_what_columns_become(file):
  """Levels are of training rows, as constants; clients in natural order."""
  said = []
  data = load(file, log=said.append)
  known = peek('table', file, table=columns())
  assert known[:3] == ((3,), 2, 'float32') and known.num_clients == 3
  assert [*data.columns] == ['age', 'ward=a', 'ward=b']
  np.testing.assert_array_equal(
    data.train.x[:3], [[30, 1, 0], [50, 0, 1], [np.nan, 0, 1]]
  )
  np.testing.assert_array_equal(data.test.x, [[70, 0, 0]])
  np.testing.assert_array_equal(data.train.x[5], [60, 0, 0])
  assert [*data.class_names] == ['no', 'yes'] and data.test.y.tolist() == [1]
  assert [*data.client_names] == ['clinic2', 'clinic10', 'north']
  assert data.clients[0].tolist() == [2, 2, 2, 1, 1, 0, 0]
  assert said == [
    'Left out, constant in training rows: fixed.',
    'Missing cells, filled by medians of training rows: age 1.',
  ]


def test_what_is_odd_is_said(tmp_path):
  rows = ['1,yes,p,train', '2,no,p,train', '1,yes,q,train', '2,no,q,train']
  rows += ['3,yes,r,train', '4,yes,r,train', '1,yes,p,test', '9,no,p,test']
  file, head, said = tmp_path / 'a.csv', 'v,ill,clinic,part', []
  load(write(file, *rows, header=head), log=said.append)
  assert said[0].startswith('1 of 2 test rows are training rows')
  assert said[1] == 'Clients with rows of one class, 1: r.'
  load(write(tmp_path / 'b.csv', *rows[:6], header=head), log=said.append)
  assert said[2] == 'The rows of p and q are the same.'
  rows = ['1,2,1,p', '2,3,1,p', '3,1,0,q', '4,2,0,q']
  file = write(tmp_path / 'c.csv', *rows, header='v,time,seen,clinic')
  load(file, 'cox', 'time,seen', split='', log=said.append)
  assert said[-1] == 'Clients with no event, 1: q.'


def test_features_of_another_file(file, tmp_path):
  """By their names: in another order, with other levels, without labels."""
  other = write(tmp_path / 'b.csv', 'b,1,9', 'z,2,', header='ward,k,age')
  found = features_of(other, load(file).columns)
  np.testing.assert_array_equal(found, [[9, 0, 1], [np.nan, 0, 0]])
  bare = write(tmp_path / 'c.csv', '1,9', header='k,age')
  assert "got 'ward=a'" in refused(features_of, bare, load(file).columns)


def test_a_patient_on_both_sides_is_said(tmp_path):
  rows = ['1,a,ann,train', '2,b,bob,train', '3,a,ann,test', '4,b,eve,test']
  file = write(tmp_path / 'a.csv', *rows, header='v,ill,who,part')
  said = []
  table = table_of('ill', '', 'part', 'cross_entropy', 'who')
  data = load_dataset('table', data_dir=file, table=table, log_fn=said.append)
  assert said == ['Values of who in training and in test rows, 1: ann.']
  assert [*data.columns] == ['v']
  table = table._replace(split='', label=('part',))
  load_dataset('table', data_dir=file, table=table, log_fn=said.append)
  assert said[1].startswith('Tests are drawn row by row: rows of one who ')


def test_parquet_is_read_alike(file, tmp_path):
  pandas, _ = pytest.importorskip('pandas'), pytest.importorskip('pyarrow')
  other = str(tmp_path / 'wards.parquet')
  pandas.read_csv(file).to_parquet(other)
  one, two = load(file), load(other)
  np.testing.assert_array_equal(one.train.x, two.train.x)
  assert one.class_names == two.class_names


CONFIG = {
  **{'dataset': 'table', 'label': 'ill', 'client': 'clinic', 'rounds': 1},
  **{'partition': 'natural', 'num_clients': 0, 'model': 'linear'},
  'batch_size': 2,
}


def random_table(path, number=120):
  """Write three clients of unlike scale, with gaps, without a split."""
  rng = np.random.default_rng(0)
  owner = np.arange(number) % 3
  x = rng.normal(10.0 * owner, 1 + owner)
  cells = [f'{v:.6f}' if at % 7 else '' for at, v in enumerate(x)]
  rows = zip(
    cells,
    rng.normal(size=number),
    rng.integers(0, 2, number),
    owner,
    strict=True,
  )
  return write(
    path,
    *(f'{a},{b},{y},c{k}' for a, b, y, k in rows),
    header='a,b,ill,clinic',
  )


@pytest.mark.parametrize('how', ['all', 'client', 'none'])
@pytest.mark.parametrize('later', [(), ('c1',)])
def test_tests_change_no_training_input(tmp_path, how, later):
  """Nor do validation rows, or clients who come later, those of others."""
  config = {**CONFIG, 'standardise': how, 'validation_fraction': 0.2}
  config |= {'unseen_clients': later or 0}
  file = random_table(tmp_path / 'one.csv')
  first = pfl.build_experiment({**config, 'data_dir': file})
  rows = (tmp_path / 'one.csv').read_text().splitlines()
  splits = first.data.splits
  train = np.asarray(splits['train'].index)
  kept = {
    int(row)
    for client, count in zip(train, splits['train'].count, strict=True)
    for row in client[:count]
  }
  assert 0 < len(kept) < 100 and first.data.names[-1] == (
    'c1' if later else 'c2'
  )
  changed = [
    row if at in kept else f'1e6,-1e6,{",".join(row.split(",")[2:])}'
    for at, row in enumerate(rows[1:])
  ]
  other = write(tmp_path / 'two.csv', *changed, header=rows[0])
  second = pfl.build_experiment({**config, 'data_dir': other})
  where = sorted(kept)
  x = np.asarray(first.train.x)
  np.testing.assert_array_equal(x[where], np.asarray(second.train.x)[where])
  assert not np.isnan(x).any()
  for client, count in zip(train, splits['train'].count, strict=True):
    own = x[client[:count]]
    if how == 'client':
      np.testing.assert_allclose(own.mean(0), 0, atol=1e-5)
      np.testing.assert_allclose(own.std(0, ddof=1), 1, rtol=1e-5)
  if how == 'all':
    np.testing.assert_allclose(x[where].mean(0), 0, atol=1e-5)
  if how == 'none':
    assert x[where, 0].max() > 10


def test_columns_without_spread_become_zero():
  x = np.array([[1.0, np.nan], [1.0, np.nan]])
  rows = np.array([[5.0, 7.0], [np.nan, np.nan]])
  assert not scale_of(x).applied(rows).any()
  filled = scale_of(x, is_scaled=False).applied(rows)
  np.testing.assert_array_equal(filled, [[5, 7], [1, 0]])


def test_the_key_of_a_run_knows_the_table(file):
  config = {**CONFIG, 'data_dir': file, 'split': 'part'}
  experiment = pfl.build_experiment(config)
  assert make_data_of(print)(parse_config(config)) == experiment.data_id
  assert experiment.data.names == ['clinic2', 'clinic10', 'north']


def test_the_hospitals_are_those_of_flamby():
  """Patients a hospital for training and testing, as its page has them."""
  data = load_dataset('heart')
  assert [*data.client_names] == ['cleveland', 'hungarian', 'switzerland', 'va']
  sizes = [np.bincount(clients).tolist() for clients in data.clients]
  assert sizes == [[199, 172, 30, 85], [104, 89, 16, 45]]
  assert data.train.x.shape == (486, 13) and not np.isnan(data.train.x).any()
  assert [images.y.sum() for images in (data.train, data.test)] == [252, 131]


def test_arrays_may_be_matrices_with_numbers():
  xs = [np.ones((3, 4)), np.zeros((2, 4))]
  data = pfl.from_arrays(xs, [np.array([0.5, 1, 2]), np.array([1.5, 2])])
  assert data.x.shape == (5, 4) and data.y[:, 0].tolist() == [0.5, 1, 2, 1.5, 2]


def changed(row, cell, new):
  """Return the rows with another cell; rows from 1."""
  cells = ROWS[row - 1].split(',')
  cells[HEADER.split(',').index(cell)] = new
  return [*ROWS[: row - 1], ','.join(cells), *ROWS[row:]]


NUMBERS = [row.replace('yes', '2.5').replace('no', '1') for row in ROWS]
EVENTS = [f'{row},{at % 2}' for at, row in enumerate(NUMBERS)]
REFUSED = [
  (ROWS, {'label': 'il'}, 'did you mean ill?'),
  (ROWS, {'client': 'ward2'}, 'client: got'),
  (ROWS, {'label': ''}, 'expected a column of labels'),
  (
    ROWS,
    {'label': 'ill', 'client': 'ill'},
    'other ones than client, split and group',
  ),
  (ROWS, {'label': 'ill,age'}, 'a column of classes'),
  (changed(2, 'age', '5O'), {}, "'5O' in column age, row 2"),
  (changed(2, 'age', '1e50'), {}, 'that 32 bits hold'),
  (changed(2, 'part', 'dev'), {}, '--config.validation_fraction=0.2 keeps'),
  (changed(2, 'clinic', ''), {}, 'the client of every row'),
  (changed(4, 'clinic', 'south'), {}, "'south' in column clinic, row 4"),
  (changed(2, 'ill', ''), {}, 'the class of every row'),
  (changed(4, 'ill', 'maybe'), {}, 'each with a training row'),
  ([*ROWS, '1,2'], {}, 'with 2 cells in row 9'),
  ([], {}, 'with 0 rows below'),
  (NUMBERS, {}, 'loss=squared'),
  (ROWS, {'loss': 'squared'}, 'words are classes'),
  (NUMBERS, {'loss': 'logistic'}, "'2.5' in column ill, row 1"),
  (
    [row.replace(',2.5,', ',,') for row in NUMBERS],
    {'loss': 'huber'},
    'a label',
  ),
  (EVENTS, {'loss': 'cox'}, 'time and event, in this order'),
  (
    [row.replace(',2.5,', ',-1,') for row in EVENTS],
    {'loss': 'cox', 'label': 'ill,seen'},
    "'-1' in column ill, row 1",
  ),
  (
    [row[:-1] + '0' for row in EVENTS],
    {'loss': 'cox', 'label': 'ill,seen'},
    "'0' in column seen, row 1",
  ),
]


@pytest.mark.parametrize('rows, table, words', REFUSED)
def test_sentences(tmp_path, rows, table, words):
  header = (
    f'{HEADER},seen' if rows is EVENTS or 'seen' in str(table) else HEADER
  )
  file = write(tmp_path / 'bad.csv', *rows, header=header)
  assert words in refused(lambda: load(file, **table))


def test_files_that_are_refused(tmp_path):
  assert 'is there, and ends in .csv' in refused(load, str(tmp_path))
  double = write(tmp_path / 'a.csv', '1,2', header='a,a')
  assert 'all different' in refused(load, double)
  fixed = write(tmp_path / 'b.csv', '1,0', '1,1', header='a,ill')
  words = refused(lambda: load(fixed, client='', split=''))
  assert 'without a feature that varies' in words
