"""Checkpoints keep every bit, and every kind of damage is detected."""

import json
import shutil
from typing import Any, NamedTuple

import helpers
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from run_directories import refused

from fedjax_pfl.runs import checkpoint


class State(NamedTuple):
  params: Any
  rest: Any
  round: Any


def make_state(step=0):
  rng = np.random.default_rng(step)
  kernel = rng.standard_normal((3, 3, 64, 8)).astype(np.float32)
  return State(
    params={'conv': {'kernel': jnp.asarray(kernel), 'bias': None}},
    rest=((), [jnp.zeros((0, 3)), rng.integers(0, 9, 5)], None),
    round=jnp.asarray(step, jnp.int32),
  )


def kind(leaf):
  """A strong 0.5 would turn later bfloat16 arithmetic into float32."""
  return type(leaf), getattr(leaf, 'weak_type', False)


def assert_same_bits(got, want):
  helpers.assert_same_bits(got, want)
  assert jax.tree.map(kind, got) == jax.tree.map(kind, want)


@pytest.fixture
def folder(tmp_path):
  """Return a folder with the checkpoints 4 and 8."""
  for step in (4, 8):
    checkpoint.save(tmp_path / 'c', step, make_state(step))
  return tmp_path / 'c'


def names(folder):
  return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
  'leaf',
  [
    np.array([0x7FC12345, 0xFF800001], np.uint32).view(np.float32),
    np.arange(-4, 4).astype(ml_dtypes.bfloat16),
    jnp.asarray(0.5),
    0.1,
  ],
  ids=str,
)
def test_every_kind_of_leaf_survives(tmp_path, leaf):
  checkpoint.save(tmp_path / 'c', 1, {'file': leaf})
  _, restored = checkpoint.restore(tmp_path / 'c', {'file': leaf}, print)
  assert_same_bits(restored, {'file': leaf})


def test_a_tree_with_holes_comes_back_bit_for_bit(folder):
  state = jax.tree.map(jnp.asarray, make_state(9))
  checkpoint.save(folder, 9, state)
  for like in (state, jax.eval_shape(lambda: state)):  # shapes are enough
    step, restored = checkpoint.restore(folder, like, print)
    assert step == 9
    assert_same_bits(restored, state)


def test_two_newest_are_kept_and_nothing_else(folder):
  for step in (10, 12):
    checkpoint.save(folder, step, make_state(step))
  checkpoint.save(folder, 12, make_state(13))
  assert names(folder) == ['10', '12']
  _, restored = checkpoint.restore(folder, make_state(), print)
  assert_same_bits(restored, make_state(13))
  # The next save may come earlier than a damaged one.
  checkpoint.save(folder, 11, make_state(11))
  assert checkpoint.steps(folder) == [10, 11]


@pytest.mark.parametrize(
  'change',
  [
    {'leaves': []},
    {'leaves': {'round': ['int32']}},
    {'leaves': {'round': {}}},
    {'metadata': [1]},
    {'state': ''},
    'nested',
    'shape',
  ],
  ids=str,
)
def test_checksums_that_anyone_can_write(folder, change):
  file = folder / '8' / checkpoint.CHECKSUMS
  content, like = json.loads(file.read_text()), make_state()
  if change == 'shape':  # the state is another one than they say
    name = next(name for name in content['leaves'] if 'kernel' in name)
    content['leaves'][name][1] = [8, 3, 3, 64]
    like.params['conv']['kernel'] = np.zeros((8, 3, 3, 64), np.float32)
  elif change != 'nested':
    content |= change
  content['sha256'] = checkpoint._digest(content)
  text = json.dumps(content)
  file.write_text('[' * 10_000 if change == 'nested' else text)
  if change == 'shape':
    shutil.rmtree(folder / '4')
    assert 'only damaged ones' in refused(
      checkpoint.restore, folder, like, print
    )
    return
  assert checkpoint.restore(folder, like, print)[0] == 4


def test_killed_while_saving(folder):
  shutil.move(folder / '8', folder / '.8.tmp')
  logged = []
  assert checkpoint.restore(folder, make_state(), logged.append)[0] == 4
  assert not logged  # an unfinished save is no damage
  checkpoint.save(folder, 8, make_state(8))
  assert names(folder) == ['4', '8']


def flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def truncate(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize('harm', [flip, truncate, lambda path: path.unlink()])
@pytest.mark.parametrize('name', [checkpoint.STATE, checkpoint.CHECKSUMS])
def test_damage_to_any_file_is_noticed(folder, harm, name):
  logged = []
  harm(folder / '8' / name)
  step, restored = checkpoint.restore(folder, make_state(), logged.append)
  assert step == 4 and len(logged) == 1 and name in logged[0]
  assert logged[0].startswith('Checkpoint 8 (')
  assert logged[0].endswith(' is damaged; continuing from 4.')
  assert_same_bits(restored, make_state(4))
  # It never starts again from round 0.
  harm(folder / '4' / name)
  message = refused(lambda: checkpoint.restore(folder, make_state(), print))
  assert f"got 'only damaged ones in {folder}: 8 ({name} " in message
  assert 'Choices: delete the run directory to start anew' in message


def test_state_of_other_code_is_a_sentence(tmp_path):
  folder = tmp_path / 'c'
  checkpoint.save(folder, 4, {'a': np.zeros(3), 'b': np.zeros(2)})
  like = {'a': np.zeros(4), 'c': np.zeros(2)}
  message = refused(lambda: checkpoint.restore(folder, like, print))
  assert 'a: float64[3], not float64[4]' in message
  assert 'b: float64[2], not none; c: none, not float64[2]' in message
  assert 'another version of the code' in message
