"""Optimised programs are read as they are written."""

import jax
import jax.numpy as jnp
import pytest
from accelerators.programs import LOOP, TILED

from experiments.accelerators.hlo_text import Array, parse


def test_computations_and_the_first_of_them():
  module = parse(LOOP)
  assert module.entry == 'main'
  assert {*module.computations} == {'rows', 'step', 'more', 'main'}
  assert [*module.computations['rows']] == ['p0', 'p1', 'zero', 'slice']


def test_an_instruction():
  loop = parse(LOOP).computations['main']['loop']
  assert (loop.op, loop.operands, loop.is_root) == ('while', ('start',), True)
  assert loop.results[1] == Array('f32', (8, 16), '{1,0}')
  assert loop.calls('body') == ['step'] and loop.calls() == ['more', 'step']


def test_results_with_comments_and_tiles():
  (kernel,) = [
    instruction
    for instruction in parse(TILED).computations['main'].values()
    if instruction.op == 'fusion'
  ]
  whole, near, number = kernel.results
  assert (whole.space, near.space, number.shape) == (0, 1, ())
  assert kernel.cycles == 1828
  assert whole.nbytes == 4 * 56 * 128  # 50 x 3 in tiles of 8 x 128


@pytest.mark.parametrize(
  ('array', 'nbytes'),
  [
    (Array('f32', (50, 3)), 600),
    (Array('bf16', (), '{:T(256)}'), 2),
    (Array('u8', (2, 3, 5), '{0,2,1:T(8,128)(4,1)}'), 3 * 8 * 128),
    (Array('pred', (1024,), '{0:T(1024)}'), 1024),
  ],
)
def test_bytes_of_an_array(array, nbytes):
  assert array.nbytes == nbytes


def test_where_a_loop_was_written():
  module = parse(LOOP)
  file, function = module.source(module.computations['main']['loop'])
  assert (file, function) == ('/p/local_training.py', 'run_epoch')
  assert module.source(module.computations['main']['start']) == ('', '')


def test_what_jax_writes():
  """The text of this jax has every instruction that the reader needs."""

  def loop(x, n):
    return jax.lax.fori_loop(0, n, lambda i, y: jnp.tanh(y @ x), x)

  shape = jax.ShapeDtypeStruct((8, 8), 'float32')
  compiled = jax.jit(loop).lower(shape, 3).compile()
  module = parse(compiled.as_text())
  found = [
    (instruction.op, module.source(instruction)[0])
    for computation in module.computations.values()
    for instruction in computation.values()
  ]
  assert ('while', __file__) in found
  entry = module.computations[module.entry].values()
  assert sum(instruction.is_root for instruction in entry) == 1
