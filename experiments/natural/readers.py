"""Read sets whose clients exist, each from the files of its release.

A reader returns the content of the prepared file, and how many clients and
examples the release has. If the release does not divide training from testing,
`divide` does, always alike.
"""

import collections
import csv
import pathlib
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from fedjax_pfl.data.images import SPLITS
from fedjax_pfl.data.preparation import texts

TEST_SHARE, SEED = 0.3, 0
REGIONS = 'Northeast', 'South', 'West', 'Midwest', 'Europe', 'Canada'
DOMAINS = 'art_painting', 'cartoon', 'photo', 'sketch'
SOURCES = 'amazon', 'caltech10', 'dslr', 'webcam'
PRODUCTS = 'books', 'dvd', 'electronics', 'kitchen'
WORDS = 1000  # of the reviews: those in most of the training reviews
FIRST_TESTS = 5  # spoken digits: recordings 0 to 4 are for testing
TEST_YEAR = '2016-03'  # air: the last of four years, from this month
AIR = (
  *('month', 'hour', 'PM10', 'SO2', 'NO2', 'CO', 'O3', 'TEMP', 'PRES', 'DEWP'),
  *('RAIN', 'wd', 'WSPM'),
)
Row = dict[str, Any]
Content = list[Row] | dict[str, np.ndarray]  # the latter: of a text
Read = tuple[Content, list[int]]


def divide(strata: Iterable[Hashable], units: Sequence[Hashable]) -> list[str]:
  """Return the split of each row; equal units are on the same side.

  Of the U units of a stratum round(TEST_SHARE U) are for testing, at least one
  of two. A unit belongs to the stratum of its first row.
  """
  groups, first = collections.defaultdict(list), set()
  for stratum, unit in zip(strata, units, strict=True):
    if unit not in first:
      first.add(unit)
      groups[stratum].append(unit)
  rng, tests = np.random.default_rng(SEED), set()
  for group in groups.values():
    number = max(round(TEST_SHARE * len(group)), len(group) > 1)
    tests |= {group[at] for at in rng.permutation(len(group))[:number]}
  return [SPLITS[unit in tests] for unit in units]


def _table(rows: list[Row], label: str, units: Sequence | None = None) -> Read:
  """Return the rows with a split drawn in each client and class.

  Without `units` rows with equal features are on the same side.
  """
  units = units or [tuple(row.items()) for row in rows]
  splits = divide([(row['client'], row[label]) for row in rows], units)
  lines = zip(rows, splits, strict=True)
  return _counted([{'split': split, **row} for row, split in lines])


def _counted(rows: list[Row]) -> Read:
  return rows, [len({row['client'] for row in rows}), len(rows)]


def _lines(file: pathlib.Path, start: str = '') -> list[list[str]]:
  """Return the cells behind the line that begins with `start`."""
  lines = file.read_text(encoding='utf-8-sig').splitlines()
  at = next(n for n, line in enumerate(lines) if line.startswith(start))
  cells = csv.reader(lines[at:], delimiter='\t' if '\t' in lines[at] else ',')
  return [line for line in cells if line]


def _records(file: pathlib.Path) -> list[Row]:
  names, *lines = _lines(file)
  return [dict(zip(names, line, strict=True)) for line in lines]


def brca(folder: pathlib.Path) -> Read:
  """Read patients by their region, divided as FLamby divides them."""
  file = folder / 'dataset_creation_scripts' / 'train_test_split.csv'
  fold_of = {row['pid']: row['fold2'] for row in _records(file)}
  rows = []
  for row in _records(folder / 'brca.csv'):
    if fold := fold_of.get(row.pop('pid')):
      split, _, region = fold.partition('_')
      labels = {'time': row.pop('T'), 'event': row.pop('E')}
      client = REGIONS[int(region)]
      rows.append({'client': client, 'split': split, **labels, **row})
  return _counted(rows)


def wisdm(folder: pathlib.Path) -> Read:
  """Read windows of ten seconds by user; XAVG, always 0, is left out."""
  file = folder / 'WISDM_ar_v1.1_transformed.arff'
  names = re.findall(r'@attribute "?(\w+)', file.read_text(encoding='utf-8'))
  rows = []
  for line in _lines(file, '@data')[1:]:
    row = dict(zip(names, line, strict=True))
    ends = {'client': f'user{row["user"]}', 'activity': row['class']}
    rest = (x for x in row if x not in ('UNIQUE_ID', 'user', 'class', 'XAVG'))
    rows.append({**ends, **{x: row[x].replace('?', '') for x in rest}})
  return _table(rows, 'activity')


def spoken_digits(folder: pathlib.Path) -> Read:
  """List recordings by speaker; the first five of a digit are tests."""
  rows = []
  for file in sorted(folder.glob('*.wav')):
    digit, speaker, number = file.stem.split('_')
    split = SPLITS[int(number) < FIRST_TESTS]
    rows.append(_file(file, speaker, digit) | {'split': split})
  return _counted(rows)


def pacs(folder: pathlib.Path) -> Read:
  """List images by domain."""
  files = [file for name in DOMAINS for file in (folder / name).glob('*/*.*')]
  rows = [_file(x, x.parts[-3], x.parts[-2]) for x in sorted(files)]
  return _table(rows, 'label')


def _file(file: pathlib.Path, client: str, label: str) -> Row:
  return {'client': client, 'label': label, 'path': file.absolute()}


def office_caltech(folder: pathlib.Path) -> Read:
  """Read the counts of 800 visual words, as shares of the words of an image."""
  from scipy import io

  rows = []
  for source in SOURCES:
    arrays = io.loadmat(folder / f'{source}.mat')
    x = arrays['fts'] / arrays['fts'].sum(1, keepdims=True)
    for label, shares in zip(arrays['labels'].ravel(), x, strict=True):
      named = {f'word{at}': f'{v:.6g}' for at, v in enumerate(shares)}
      rows.append({'client': source, 'class': label, **named})
  return _table(rows, 'class')


def landmine(folder: pathlib.Path) -> Read:
  """Read nine features by field."""
  from scipy import io

  arrays, rows = io.loadmat(folder / 'LandmineData.mat'), []
  fields = zip(arrays['feature'].ravel(), arrays['label'].ravel(), strict=True)
  for number, (features, labels) in enumerate(fields):
    for label, x in zip(labels.ravel(), features, strict=True):
      named = {f'x{at}': f'{v:.9g}' for at, v in enumerate(x)}
      rows.append({'client': f'field{number + 1}', 'mine': label, **named})
  return _table(rows, 'mine')


def amazon_reviews(folder: pathlib.Path) -> Read:
  """Read which of the most frequent words a review has, by product.

  Equal texts are on the same side; words are chosen by training reviews.
  """
  reviews = []
  for product in PRODUCTS:
    for positive, name in enumerate(['negative', 'positive']):
      file = folder / product / f'{name}.review'
      content = file.read_text(encoding='utf-8', errors='replace')
      for review in re.findall(r'<review>(.*?)</review>', content, re.DOTALL):
        parts = re.findall(r'<(?:title|review_text)>(.*?)</', review, re.DOTALL)
        words = re.findall(r"[a-z']+", ' '.join(parts).lower())
        reviews.append((product, positive, frozenset(words), parts[-1].strip()))
  splits = divide([x[:2] for x in reviews], [x[-1] for x in reviews])
  known = collections.Counter()
  for (*_, words, _), split in zip(reviews, splits, strict=True):
    known.update(words if split == 'train' else ())
  ranked = sorted(known, key=lambda word: (-known[word], word))[:WORDS]
  rows = []
  for (product, positive, words, _), split in zip(reviews, splits, strict=True):
    row = {'client': product, 'split': split, 'positive': positive}
    rows.append(row | {f'has_{word}': int(word in words) for word in ranked})
  return _counted(rows)


def reuters_c50(folder: pathlib.Path) -> Read:
  """Read texts by author as sequences of characters, as plays are read."""
  examples, clients, splits, number = [], [], [], 0
  for split in SPLITS:
    for file in sorted((folder / f'C50{split}').glob('*/*.txt')):
      text = texts.known_or_none(file.read_text(encoding='latin-1'))
      examples.append(texts.sequences(np.where(text < 0, texts.OTHER, text)))
      clients += [file.parent.name] * len(examples[-1].y)
      splits += [split] * len(examples[-1].y)
      number += 1
  x, y = map(np.concatenate, zip(*examples, strict=True))
  content = {'inputs': x, 'labels': y, 'clients': np.array(clients)}
  content |= {'split': np.array(splits), 'num_classes': np.array(100)}
  return content, [len({*clients}), number]


def beijing_air(folder: pathlib.Path) -> Read:
  """Read hours by station; hours without PM2.5 are left out."""
  rows = []
  for file in sorted(folder.glob('PRSA_Data_*.csv')):
    for row in _records(file):
      is_test = f'{row["year"]}-{int(row["month"]):02}' >= TEST_YEAR
      head = {'client': row['station'], 'split': SPLITS[is_test]}
      if row['PM2.5'] != 'NA':
        air = {name: row[name].replace('NA', '').strip() for name in AIR}
        rows.append(head | {'pm25': row['PM2.5']} | air)
  return _counted(rows)


def parkinsons(folder: pathlib.Path) -> Read:
  """Read recordings by patient; those of one day are on the same side."""
  rows, days = [], []
  for row in _records(folder / 'parkinsons_updrs.data'):
    client = f'patient{row.pop("subject#")}'
    label = {'total_updrs': row.pop('total_UPDRS')}
    del row['motor_UPDRS']  # a part of the label
    days.append((client, int(float(row['test_time']))))
    rows.append({'client': client, **label, **row})
  return _table(rows, 'client', days)
