"""Checkpoints keep every bit, and every kind of damage is detected."""

import json
import shutil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
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


def assert_same_bits(got, want):
  assert jax.tree.structure(got) == jax.tree.structure(want)
  for one, other in zip(
    jax.tree.leaves(got), jax.tree.leaves(want), strict=True
  ):
    assert type(one) is type(other)
    one, other = np.asarray(one), np.asarray(other)
    assert one.dtype == other.dtype and one.shape == other.shape
    assert one.tobytes() == other.tobytes()


def test_a_tree_with_holes_comes_back_bit_for_bit(tmp_path):
  folder, state = tmp_path / 'c', jax.tree.map(jnp.asarray, make_state(3))
  assert checkpoint.restore(folder, state, print) is None
  checkpoint.save(folder, 3, state)
  for like in (state, jax.eval_shape(lambda: state)):  # shapes are enough
    step, restored = checkpoint.restore(folder, like, print)
    assert step == 3
    assert_same_bits(restored, state)
  checkpoint.save(folder, 4, ((), None))
  assert checkpoint.restore(folder, ((), None), print) == (4, ((), None))


@pytest.mark.parametrize(
  'leaf',
  [
    np.array([0.0, -0.0, np.inf, -np.inf, 5e-324]),
    np.full(4, -0.0, np.float32),  # equal to the fill value, but not its bits
    np.array([0x7FC12345, 0xFF800001], np.uint32).view(np.float32),
    np.arange(-4, 4).astype(ml_dtypes.bfloat16),
    np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    np.array([2**64 - 1, 0], np.uint64),
    np.array([True, False]),
    np.array([1 + 2j], np.complex64),
    np.float64(1 / 3),
    np.zeros((2, 0), np.int8),
    jnp.asarray(7),
    0.1,
    12,
    True,
  ],
  ids=str,
)
def test_every_kind_of_leaf_survives(tmp_path, leaf):
  checkpoint.save(tmp_path / 'c', 1, {'leaf': leaf})
  _, restored = checkpoint.restore(tmp_path / 'c', {'leaf': leaf}, print)
  assert_same_bits(restored, {'leaf': leaf})


def test_weak_types_stay_weak(tmp_path):
  # A strong 0.5 would turn later bfloat16 arithmetic into float32.
  tree = {'scale': jnp.asarray(0.5), 'n': jnp.float32(0.5)}
  checkpoint.save(tmp_path / 'c', 1, tree)
  _, restored = checkpoint.restore(tmp_path / 'c', tree, print)
  assert restored['scale'].weak_type and not restored['n'].weak_type


def test_two_newest_are_kept_and_nothing_else(tmp_path):
  for step in (2, 4, 6, 10):
    checkpoint.save(tmp_path / 'c', step, make_state(step))
  checkpoint.save(tmp_path / 'c', 10, make_state(11))
  assert sorted(p.name for p in (tmp_path / 'c').iterdir()) == ['10', '6']
  _, restored = checkpoint.restore(tmp_path / 'c', make_state(), print)
  assert_same_bits(restored, make_state(11))


def test_killed_while_saving(tmp_path):
  folder = tmp_path / 'c'
  checkpoint.save(folder, 4, make_state(4))
  shutil.copytree(folder / '4', folder / '.8.tmp')
  (folder / '.8.tmp' / checkpoint.CHECKSUMS).unlink()
  logged = []
  assert checkpoint.restore(folder, make_state(), logged.append)[0] == 4
  assert not logged  # an unfinished save is no damage
  checkpoint.save(folder, 8, make_state(8))
  assert sorted(p.name for p in folder.iterdir()) == ['4', '8']


def flip(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def truncate(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize('harm', [flip, truncate, lambda path: path.unlink()])
def test_damage_to_any_file_is_noticed(tmp_path, harm):
  folder = tmp_path / 'c'
  old, new = make_state(4), make_state(8)
  checkpoint.save(folder, 4, old)
  checkpoint.save(folder, 8, new)
  shutil.copytree(folder / '8', tmp_path / 'whole')
  damaged = [path for path in (folder / '8').rglob('*') if path.is_file()]
  assert len(damaged) > 3
  for path in damaged:
    logged = []
    harm(path)
    step, restored = checkpoint.restore(folder, make_state(), logged.append)
    assert step == 4 and len(logged) == 1 and path.name in logged[0]
    assert logged[0].startswith('Checkpoint 8 (')
    assert logged[0].endswith(' is damaged; continuing from 4.')
    assert_same_bits(restored, old)
    shutil.rmtree(folder / '8')
    shutil.copytree(tmp_path / 'whole', folder / '8')
  assert_same_bits(checkpoint.restore(folder, new, print)[1], new)
  # The next save may come earlier than the damaged one.
  checkpoint.save(folder, 6, make_state(6))
  assert checkpoint.steps(folder) == [4, 6]


def test_edited_checksums_are_noticed(tmp_path):
  checkpoint.save(tmp_path / 'c', 4, {'x': np.arange(3)})
  checkpoint.save(tmp_path / 'c', 8, {'x': np.arange(3)})
  path = tmp_path / 'c' / '8' / checkpoint.CHECKSUMS
  content = json.loads(path.read_text())
  content['leaves']['x']['shape'] = [4]
  path.write_text(json.dumps(content))
  logged = []
  step, _ = checkpoint.restore(
    tmp_path / 'c', {'x': np.arange(3)}, logged.append
  )
  assert step == 4 and 'checksums.json was changed' in logged[0]


def test_all_damaged_never_starts_again(tmp_path):
  folder = tmp_path / 'c'
  for step in (4, 8):
    checkpoint.save(folder, step, make_state(step))
    (folder / str(step) / checkpoint.CHECKSUMS).write_text('')
  with pytest.raises(BadInput) as caught:
    checkpoint.restore(folder, make_state(), print)
  message = str(caught.value)
  assert f"got 'only damaged ones in {folder}: 8 (checksums.json is" in message
  assert 'expected at least one undamaged checkpoint' in message
  assert 'Choices: delete the run directory to start anew' in message
  assert 'Likely cause: a full disk' in message


def test_state_of_other_code_is_a_sentence(tmp_path):
  folder = tmp_path / 'c'
  checkpoint.save(folder, 4, {'a': np.zeros(3), 'b': np.zeros(2)})
  like = {'a': np.zeros(4), 'c': np.zeros(2)}
  with pytest.raises(BadInput) as caught:
    checkpoint.restore(folder, like, print)
  message = str(caught.value)
  assert 'a: float64[3], not float64[4]' in message
  assert 'b: float64[2], not none; c: none, not float64[2]' in message
  assert 'another version of the code' in message


def test_a_part_is_restored_alone(tmp_path):
  folder = tmp_path / 'c'
  checkpoint.save(folder, 3, {'a': np.arange(3), 'b': np.ones(2)})
  got = checkpoint.restore(folder, {'a': np.zeros(3, int)}, print, part=True)
  assert_same_bits(got, (3, {'a': np.arange(3)}))
  for like in ({'a': np.zeros(4, int)}, {'c': np.zeros(3, int)}):
    with pytest.raises(ValueError, match='other leaves'):
      checkpoint.restore(folder, like, print, part=True)
