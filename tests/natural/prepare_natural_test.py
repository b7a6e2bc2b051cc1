"""Small releases of sets whose clients exist become what runs read."""

import csv
import itertools
import pathlib

import numpy as np
import pytest
from helpers import refused
from scipy import io

from experiments.natural import readers, sets
from fedjax_pfl.data.datasets import load_dataset

REVIEW = (
  '<review><title>{0}</title><review_text>good {0}</review_text></review>'
)
PATIENT = 'subject#\tage\ttest_time\tmotor_UPDRS\ttotal_UPDRS\tPPE\n'
ARFF = '@attribute "UNIQUE_ID" numeric\n@attribute "user"\n'
ARFF += '@attribute "X0" numeric\n@attribute "XAVG" numeric\n@attribute class\n'
HOURS = 'No,year,station,PM2.5,' + ','.join(readers.AIR) + '\n'
FOLDS = 'pid,fold,fold2\na,train,train_0\nb,test,test_0\nc,train,train_3\n'
TEXTS = {
  'brca': {
    'brca.csv': 'pid,age,E,T\na,9,1.0,5\nb,8,0.0,6\nc,7,1.0,7\nlost,1,1,1\n',
    'dataset_creation_scripts/train_test_split.csv': FOLDS,
  },
  'wisdm': {
    'WISDM_ar_v1.1_transformed.arff': f'{ARFF}\n@data\n'
    + ''.join(f'{n},{n % 2},{n},0,Jogging\n' for n in range(8))
    + '9,1,?,0,Jogging\n'
  },
  'pacs': {
    f'{domain}/{name}/{n}.png': ''
    for domain in readers.DOMAINS
    for name in ('dog', 'cat')
    for n in range(4)
  },
  'spoken_digits': {f'{n % 2}_ann_{n}.wav': '' for n in range(8)},
  'amazon_reviews': {
    f'{product}/{kind}.review': ''.join(map(REVIEW.format, words))
    for product in readers.PRODUCTS
    for kind, words in [('negative', 'abcdeabcde'), ('positive', 'fghij')]
  },
  'reuters_c50': {
    f'C50{split}/{name}/{n}.txt': f'by {name}: \xa3' + 'x' * 90
    for split in ('train', 'test')
    for name in ('Ann', 'Bob')
    for n in range(2)
  },
  'beijing_air': {
    f'PRSA_Data_{name}.csv': HOURS
    + f'1,2013,{name},4,3{",1" * 12}\n2,2016,{name},5,3{",NA" * 12}\n'
    f'3,2016,{name},NA,3{",1" * 12}\n'
    for name in ('Dongsi', 'Gucheng')
  },
  'parkinsons': {
    'parkinsons_updrs.data': PATIENT
    + ''.join(
      f'{who}\t70\t{day}.5\t1\t{day}\t{again}\n'
      for who, day, again in itertools.product('12', range(6), range(3))
    )
  },
}
ROOT = pathlib.Path(sets.__file__).parents[2]
X = np.arange(18.0).reshape(6, 3)
ARRAYS = {
  'landmine': {
    'LandmineData': {'feature': [X, -X], 'label': [X[:, :1] % 2] * 2}
  },
  'office_caltech': {
    source: {'fts': X + 1, 'labels': np.array([[1, 1, 1, 2, 2, 2]]).T}
    for source in readers.SOURCES
  },
}


def release(folder, name):
  for path, text in TEXTS.get(name, {}).items():
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text, encoding='latin-1')
  for path, arrays in ARRAYS.get(name, {}).items():
    cells = {}
    for key, value in arrays.items():
      cells[key] = np.empty((1, len(value)), object)
      for at, array in enumerate(value):
        cells[key][0, at] = array
    folder.mkdir(exist_ok=True)
    whole = name == 'office_caltech'
    io.savemat(folder / f'{path}.mat', arrays if whole else cells)


def prepared(tmp_path, monkeypatch, name, counts):
  release(tmp_path / 'from', name)
  monkeypatch.setitem(sets.SETS[name], 'counts', counts)
  heard = []
  sets.prepare([name], tmp_path / 'from', str(tmp_path), heard.append)
  assert f'--config.data_dir={tmp_path / name}.' in heard[-1]
  if name == 'reuters_c50':
    return load_dataset('npz', data_dir=str(tmp_path / f'{name}.npz'))
  with (tmp_path / f'{name}.csv').open(encoding='utf-8') as stream:
    return [*csv.DictReader(stream)]


# Clients and examples of the release, and of the rows for testing.
SIZES = {
  'brca': ([2, 3], 1),
  'wisdm': ([2, 9], 3),
  'spoken_digits': ([1, 8], 5),
  'pacs': ([4, 32], 8),
  'office_caltech': ([4, 24], 8),
  'landmine': ([2, 12], 4),
  'amazon_reviews': ([4, 60], None),
  'beijing_air': ([2, 4], 2),
  'parkinsons': ([2, 36], 12),
}


@pytest.mark.parametrize('name', SIZES)
def test_a_release_becomes_one_file(tmp_path, monkeypatch, name):
  counts, tests = SIZES[name]
  rows = prepared(tmp_path, monkeypatch, name, counts)
  tested = [row for row in rows if row['split'] == 'test']
  assert len({row['client'] for row in rows}) == counts[0]
  assert tests is None or len(tested) == tests
  content = lambda row: tuple(v for k, v in row.items() if k != 'split')
  rest = {content(row) for row in rows if row['split'] == 'train'}
  assert not rest & {*map(content, tested)}
  wanted = sets.SETS[name]['settings'].get('label', 'label').split(',')
  assert {*wanted} < {*rows[0]}
  if name == 'parkinsons':  # three recordings a day
    days = {(row['client'], row['test_time']) for row in tested}
    assert len(days) == len(tested) / 3
  if name == 'brca':
    assert [*rows[2].values()] == ['Midwest', 'train', '7', '1.0', '7']


def test_texts_of_an_author_are_sequences(tmp_path, monkeypatch):
  dataset = prepared(tmp_path, monkeypatch, 'reuters_c50', [2, 8])
  assert [*dataset.client_names] == ['Ann', 'Bob']
  assert dataset.train.x.shape == dataset.test.x.shape == (8, 80)
  assert np.bincount(dataset.clients[0]).tolist() == [4, 4]


def test_other_files_are_refused(tmp_path):
  call = lambda *names: sets.prepare(names, tmp_path / 'from', tmp_path)
  assert 'one set' in refused(call, 'wisdm')
  release(tmp_path / 'from', 'wisdm')
  assert 'one set' in refused(call, 'wisdm', 'brca')
  assert 'with 2 clients and 9 examples, not 36' in refused(call, 'wisdm')
  assert 'LandmineData' in refused(call, 'landmine')
  assert 'no folder' in refused(sets.prepare, ['wisdm'], '')


def test_the_page_has_every_set():
  text = (ROOT / 'docs' / 'howto' / 'natural.md').read_text(encoding='utf-8')
  for name, source in sets.SETS.items():
    line = next(x for x in text.splitlines() if x.startswith(f'| `{name}` |'))
    assert source['origin'].split(',')[0] in line and source['licence'] in line
    assert f'{source["counts"][0]} ' in line
    assert f'{source["counts"][1]:,} ' in line
