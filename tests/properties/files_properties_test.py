"""Properties of files: what is written is what is read."""

import string

import jax
import ml_dtypes
import numpy as np
import pytest
from helpers import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

from fedjax_pfl.core.types import Scores
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.runs.model_file import load_model, save_model
from fedjax_pfl.runs.trackers import Tracking

NAMES = st.text(string.ascii_letters + '_.0é ', min_size=1, max_size=6)
TEXT = st.text(st.characters(exclude_categories=['Cs']), max_size=8)
SEEDS = st.integers(0, 2**32 - 1)
DTYPES = ('f4', 'f8', 'i4', 'u1', '?', ml_dtypes.bfloat16, np.float16)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Return one folder for all examples of a property."""
  return tmp_path_factory.mktemp('files')


@st.composite
def arrays(draw):
  """Draw an array of any bits: also NaN, infinity and -0.0."""
  dtype = np.dtype(draw(st.sampled_from(DTYPES)))
  shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
  rng = np.random.default_rng(draw(SEEDS))
  if dtype.kind == 'b':
    return rng.integers(0, 2, shape).astype(bool)
  size = int(np.prod(shape)) * dtype.itemsize
  return np.frombuffer(rng.bytes(size), np.uint8).view(dtype).reshape(shape)


PARAMS = st.dictionaries(
  NAMES,
  st.recursive(
    arrays(),
    lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3),
    max_leaves=5,
  ),
  max_size=3,
)


@given(params=PARAMS, meta=st.dictionaries(NAMES, TEXT | st.integers()))
def test_a_model(folder, params, meta):
  save_model(folder / 'model.npz', params, meta)
  got, about = load_model(folder / 'model.npz')
  assert about == meta
  assert_same_bits(got, params)


@st.composite
def tables(draw, metrics=()):
  """Draw the scores of some clients; missing measures are None."""
  size = draw(st.integers(1, 4))
  rng = np.random.default_rng(draw(SEEDS))

  def numbers():
    return np.where(rng.random(size) < 0.3, np.nan, rng.random(size))

  columns = {name: rng.integers(0, 99, size) for name in ('correct', 'count')}
  for name in {*Scores._fields} - {*columns, 'own'}:
    columns[name] = draw(st.sampled_from([None, numbers()]))
  own = {name: numbers() for name in metrics} or None
  ids = np.sort(rng.permutation(20)[:size])
  return ids, rng.integers(0, 99, size), Scores(**columns, own=own)


@given(
  table=tables() | tables(metrics=('f1', 'brier')),
  views=st.sets(NAMES, min_size=1, max_size=3),
)
def test_scores_of_clients(folder, table, views):
  ids, train_count, scores = table
  tracking = Tracking(folder, {}, 'none', pytest.fail)
  run = run_dir.Run(folder, pytest.fail, tracking)
  run.write_clients(Clients(ids, train_count, dict.fromkeys(views, scores)))
  got = run_dir.load_clients(folder)
  np.testing.assert_array_equal(got.ids, ids)
  np.testing.assert_array_equal(got.train_count, train_count)
  assert got.scores.keys() == views
  for one in got.scores.values():
    jax.tree.map(np.testing.assert_array_equal, one, scores)
