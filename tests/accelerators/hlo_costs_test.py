"""Kernels, FLOPs, bytes and collectives of small programs, counted by hand."""

import jax
import jax.numpy as jnp
import pytest
from accelerators.programs import (
  BOUNDED,
  EPOCHS,
  KNOWN,
  LIBRARIES,
  LOOP,
  MESH,
  TILED,
)

from experiments.accelerators import hlo_costs, hlo_totals
from experiments.accelerators.hlo_text import parse

ROWS = 8 * 16 * 4  # bytes
WEIGHTS = 16 * 16 * 4
# The slice reads its rows and an index, and writes them; the product reads rows
# and weights; the counter is read with the constant 1 and written.
STEP_BYTES = (2 * ROWS + 4) + (2 * ROWS + WEIGHTS) + 3 * 4
STEP_FLOPS = 2 * 8 * 16 * 16
CONDITION_BYTES = 4 + 4 + 1


def test_a_step():
  step = hlo_totals.step(parse(LOOP))
  assert step.kernels == 3
  assert step.flops == STEP_FLOPS
  assert step.bytes == STEP_BYTES


@pytest.mark.parametrize(
  ('text', 'trips', 'times'),
  [(LOOP, 1, 1), (LOOP, 10, 10), (KNOWN, 10, 7), (BOUNDED, 10, 7)],
)
def test_a_loop_counts_as_often_as_it_runs(text, trips, times):
  costs = hlo_totals.total(parse(text), lambda loop: trips)
  assert costs.kernels == times * (3 + 1)
  assert costs.flops == times * STEP_FLOPS
  assert costs.bytes == times * (STEP_BYTES + CONDITION_BYTES)


def test_the_step_is_an_innermost_loop():
  """The loop around it has a product more."""
  module = parse(EPOCHS)
  assert hlo_totals.step(module) == hlo_totals.step(parse(LOOP))
  twice = hlo_totals.total(module, lambda loop: 2)
  assert twice.flops == 2 * (2 + 1) * STEP_FLOPS


def test_no_loop_no_step():
  assert hlo_totals.step(parse(TILED)) is None


def test_fast_memory_is_not_counted():
  costs = hlo_totals.total(parse(TILED))
  # Read once, written once to the main memory and once to the fast one; the
  # number has 4 bytes.
  assert costs.bytes == 2 * 4 * 56 * 128 + 4
  assert (costs.kernels, costs.cycles, costs.uncosted_bytes) == (1, 1828, 0)


@pytest.mark.parametrize(
  ('name', 'flops', 'nbytes'),
  [
    # Two groups: an output sees 3 of the 6 channels through 3 x 3 taps.
    ('forward', 2 * (2 * 8 * 8 * 10) * 9 * 3, 4 * (768 + 270 + 1280)),
    ('kernel', 2 * 270 * (2 * 8 * 8), 4 * (768 + 1280 + 270)),
    ('image', 2 * (2 * 8 * 8 * 10) * 9 * 3, 4 * (1280 + 270 + 768)),
    ('product', 2 * 20 * 64 * 32, 4 * (20 * 32 + 32 * 64 + 20 * 64)),
  ],
)
def test_library_calls(name, flops, nbytes):
  module = parse(LIBRARIES)
  computation = module.computations['main']
  call = computation[name]
  assert hlo_costs.flops(call, computation, module) == flops
  assert hlo_costs.traffic(call, computation, module) == nbytes


# The gradient of the image of a convolution of stride 2, as a TPU writes it.
STRIDED = """
ENTRY %main (g: f32[8,8,8,64], k: f32[1,1,64,64]) -> f32[8,16,16,64] {
  %g = f32[8,8,8,64]{3,2,1,0} parameter(0)
  %k = f32[1,1,64,64]{3,2,1,0} parameter(1)
  ROOT %x = f32[8,16,16,64]{3,2,1,0} convolution(%g, %k),\
 window={size=1x1 pad=0_1x0_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f
}
"""


@pytest.mark.parametrize(
  ('size', 'pad', 'taps'), [(1, '0_1', 1), (4, '2_2', 16)]
)
def test_holes_of_a_stride_backwards_are_no_products(size, pad, taps):
  kernel = f'{size}x{size}'
  text = STRIDED.replace('1x1', kernel).replace('0_1x0_1', f'{pad}x{pad}')
  pixels = 8 * 8 * 8  # each goes to all taps
  assert hlo_totals.total(parse(text)).flops == 2 * pixels * taps * 64 * 64


SLICE = """
ENTRY %main (x: f32[256,1024]) -> f32[64,1024] {
  %x = f32[256,1024]{1,0} parameter(0)
  %start = ((f32[256,1024]{1,0}), f32[64,1024]{1,0:S(1)}, s32[]{:S(2)})\
 slice-start(%x), slice={[0:64], [0:1024]}
  ROOT %done = f32[64,1024]{1,0:S(1)} slice-done(%start)
}
"""


def test_a_slice_to_fast_memory_is_read_once():
  rows = 64 * 1024 * 4
  assert hlo_totals.total(parse(SLICE)).bytes == rows
  # In the main memory it is written there, too.
  beside = SLICE.replace('{1,0:S(1)}', '{1,0}')
  assert hlo_totals.total(parse(beside)).bytes == 2 * rows


# 10 of the states of 1000 clients are set, as a GPU's compiler writes it.
SCATTER = """
%combine (old: f32[], new: f32[]) -> f32[] {
  %old = f32[] parameter(0)
  ROOT %new = f32[] parameter(1)
}

%fused (p.0: f32[1000,64], p.1: f32[10,64], p.2: s32[10,1]) -> f32[1000,64] {
  %p.0 = f32[1000,64]{1,0} parameter(0)
  %p.1 = f32[10,64]{1,0} parameter(1)
  %p.2 = s32[10,1]{1,0} parameter(2)
  ROOT %set = f32[1000,64]{1,0} scatter(%p.0, %p.2, %p.1), to_apply=%combine
}

ENTRY %main (c: f32[1000,64], r: f32[10,64], i: s32[10,1]) -> f32[1000,64] {
  %c = f32[1000,64]{1,0} parameter(0)
  %r = f32[10,64]{1,0} parameter(1)
  %i = s32[10,1]{1,0} parameter(2)
  ROOT %x = f32[1000,64]{1,0} KERNEL
}
"""
FUSED = 'fusion(%c, %r, %i), kind=kInput, calls=%fused'
ALONE = 'scatter(%c, %i, %r), to_apply=%combine'


@pytest.mark.parametrize('kernel', [FUSED, ALONE])
def test_a_scatter_writes_its_rows(kernel):
  text, rows, indices = SCATTER.replace('KERNEL', kernel), 10 * 64 * 4, 10 * 4
  assert hlo_totals.total(parse(text)).bytes == indices + 2 * rows
  adding = text.replace(
    'ROOT %new = f32[] parameter(1)',
    '%new = f32[] parameter(1)\n  ROOT %add = f32[] add(%old, %new)',
  )
  assert hlo_totals.total(parse(adding)).bytes == indices + 3 * rows


def test_a_scatter_into_zeros_of_its_own_writes_all():
  text = SCATTER.replace('KERNEL', FUSED.replace('%c, ', '%r, '))
  zeros = text.replace(
    '%p.0 = f32[1000,64]{1,0} parameter(0)',
    '%p.3 = f32[10,64]{1,0} parameter(0)\n'
    '  %zero = f32[] constant(0)\n'
    '  %p.0 = f32[1000,64]{1,0} broadcast(%zero), dimensions={}',
  )
  rows, everything = 10 * 64 * 4, 1000 * 64 * 4
  assert hlo_totals.total(parse(zeros)).bytes == everything + rows + 10 * 4


def test_collectives_with_their_bytes():
  assert hlo_totals.collectives(parse(MESH)) == {
    'all-reduce': (3, 3 * 4 * 4),
    'all-gather': (1, 16 * 4),
  }


@pytest.mark.parametrize(
  ('start', 'results'),
  [
    # An all-reduce starts as its results, one or several.
    ('f32[16]{0} all-reduce-start(%x)', 16),
    ('(f32[16]{0}, f32[8]{0}) all-reduce-start(%x, %y)', 24),
    ('(f32[4]{0}, f32[16]{0}) all-gather-start(%x)', 16),
    (
      '((f32[4]{0}, f32[2]{0}), (f32[16]{0}, f32[8]{0}))'
      ' all-gather-start(%x, %y)',
      24,
    ),
    (
      '(f32[16]{0}, f32[16]{0}, u32[]{:S(2)}, u32[]{:S(2)})'
      ' collective-permute-start(%x)',
      16,
    ),
  ],
)
def test_bytes_of_a_collective_that_starts(start, results):
  module = parse(f'ENTRY %main () -> f32[] {{\n  %a = {start}\n}}')
  (one,) = module.computations['main'].values()
  assert hlo_costs.collective_bytes(one) == 4 * results


def test_an_update_in_place_writes_its_rows():
  def loop(rows, table):
    def body(i, table):
      return jax.lax.dynamic_update_slice(table, rows * i, (i, 0))

    return jax.lax.fori_loop(0, 5, body, table)

  rows, table = (
    jax.ShapeDtypeStruct(shape, 'float32') for shape in ((1, 64), (1000, 64))
  )
  compiled = jax.jit(loop).lower(rows, table).compile()
  module = parse(compiled.as_text())
  bodies = [
    name
    for computation in module.computations.values()
    for loop in computation.values()
    if loop.op == 'while'
    for name in loop.calls('body')
  ]
  assert hlo_totals.total(module, name=bodies[0]).bytes < 3 * 64 * 4 + 64


@pytest.mark.parametrize('groups', [1, 3])
def test_a_convolution_of_this_compiler(groups):
  def convolve(x, k):
    return jax.lax.conv_general_dilated(
      x,
      k,
      (1, 1),
      [(1, 1)] * 2,
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'),
      feature_group_count=groups,
    )

  x, k = jnp.ones((2, 8, 8, 6)), jnp.ones((3, 3, 6 // groups, 12))
  text = jax.jit(convolve).lower(x, k).compile().as_text()
  counted = 2 * (2 * 8 * 8 * 12) * 9 * 6 // groups
  assert hlo_totals.total(parse(text)).flops == counted
