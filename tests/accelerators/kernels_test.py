"""The kernels of a step, by the bytes that they move."""

import pytest
from accelerators.programs import EPOCHS, LOOP, TILED

from experiments.accelerators import hlo_totals, kernels
from experiments.accelerators.hlo_text import parse

ROWS, WEIGHTS = 8 * 16 * 4, 16 * 16 * 4  # bytes, as in hlo_costs_test.py


@pytest.mark.parametrize('text', [LOOP, EPOCHS])
def test_the_largest_comes_first(text):
  module = parse(text)
  found = kernels.largest(module, 10)
  step = hlo_totals.step(module)
  assert [one.costs.bytes for one in found] == [
    2 * ROWS + WEIGHTS,  # the product
    2 * ROWS + 4,  # the slice
    3 * 4,  # the counter
  ]
  assert sum(one.costs.flops for one in found) == step.flops
  assert sum(one.share for one in found) == pytest.approx(1)
  assert found[0].reads == ('f32[16,16]', 'f32[8,16]')
  assert kernels.largest(module, 1) == found[:1]


def test_they_are_printed_with_their_share():
  found = kernels.largest(parse(LOOP), 2)
  title, heads, first, _ = kernels.lines('a round', found)
  assert title == 'The largest kernels of a round'
  assert heads.split()[:3] == ['kernel', 'MB', '%']
  share = 100 * (2 * ROWS + WEIGHTS) / (4 * ROWS + WEIGHTS + 4 + 3 * 4)
  assert f'{share:.1f}' in first and 'f32[16,16]' in first


def test_no_step_no_kernels():
  assert kernels.largest(parse(TILED), 5) == []
