"""How many clients run side by side; running out of memory is simulated."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting_method import DATA, counting, start
from helpers import COHORT, KEY, assert_same_bits
from jax import lax

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.target import compiling_for
from fedjax_pfl.federated import chunking, rounds
from fedjax_pfl.federated.chunking import (
  chunk_limit,
  chunk_size,
  expected_overhead,
  overhead,
  with_oom_backoff,
)
from fedjax_pfl.federated.step_work import Work, work_of

NHWC = 'NHWC', 'HWIO', 'NHWC'
pytestmark = pytest.mark.usefixtures('quick_compiler')


def arguments():
  return *start(), jnp.array(COHORT), DATA, KEY(2)


def test_auto_is_one_on_a_cpu():
  sizes = [chunk_size(own, counting(), *arguments()) for own in ('auto', 3, 30)]
  assert sizes == [1, 3, len(COHORT)]


# ---- Padding -----------------------------------------------------------------


@pytest.mark.parametrize(
  ('counts', 'chunk', 'expected'),
  [
    ((40, 10, 20), 2, 1 - 7 / 8),  # 1 and 2 steps, then the largest alone
    ((11, 20, 19), 3, 0),  # a partial batch is a step
    ((0, 10), 2, 0.5),
  ],
)
def test_overhead_by_hand(counts, chunk, expected):
  assert overhead(np.array(counts), chunk, 10) == pytest.approx(expected)


def test_the_limit_keeps_the_overhead_of_ragged_clients_below_a_tenth():
  counts = np.random.default_rng(0).geometric(1 / 500, 100)
  with compiling_for('gpu'):
    chunk = chunk_limit('auto', counts, 100, 50)
    assert (
      chunk_limit('auto', np.full(100, 500), 10, 50) == 10
    )  # of equal sizes
  assert 1 < chunk < 100
  assert expected_overhead(counts, 100, chunk, 50) < 0.1
  assert expected_overhead(counts, 100, chunk + 1, 50) >= 0.1


# ---- Work ----


def test_work_by_hand():
  """A loop counts once; a convolution has 9 taps of 3 channels."""

  def program(x, kernel, a):
    conv = partial(lax.conv_general_dilated, dimension_numbers=NHWC)
    y = conv(x, kernel, (1, 1), 'SAME')
    return y, lax.fori_loop(0, 7, lambda _, b: jnp.sin(b @ a), a)

  shapes = jnp.ones((2, 4, 4, 3)), jnp.ones((3, 3, 3, 5)), jnp.ones((8, 8))
  work = work_of(jax.make_jaxpr(program)(*shapes).jaxpr)
  conv, product = 2 * 4 * 4 * 5, 8 * 8
  assert work == (2 * 27 * conv + 2 * 8 * product, 4 * (conv + product))


def test_nothing_is_compiled_where_the_limit_surely_fits(monkeypatch):
  compiled, fits = [], Work(flops=100, activations=2**20)
  monkeypatch.setattr(chunking, 'client_work', lambda *args: fits)
  monkeypatch.setattr(
    chunking, 'client_bytes', lambda *args: compiled.append(1) or 2**20
  )
  with compiling_for('gpu', 2**30):
    assert chunk_size('auto', counting(), *arguments()) == len(COHORT)
  assert not compiled
  with compiling_for('gpu', 4 * 2**20):  # twice what is counted is more
    assert chunk_size('auto', counting(), *arguments()) == 3
  assert compiled


def test_a_client_whose_step_fills_a_gpu_runs_alone(monkeypatch):
  monkeypatch.setattr(chunking, 'client_work', lambda *args: Work(21e9, 1))
  with compiling_for('gpu', 2**40):
    assert chunk_size('auto', counting(), *arguments()) == 1
    assert chunk_size(2, counting(), *arguments()) == 2


# ---- Memory ------------------------------------------------------------------


def small_memory(holds, tried):
  """Return a maker of rounds that fail with more clients at a time."""

  def make(chunk):
    round_fn = rounds.make_round(counting(), clients_per_chunk=chunk)

    def play(*args):
      tried.append(chunk)
      if chunk > holds:
        raise jax.errors.JaxRuntimeError(
          'RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.'
        )
      return round_fn(*args)

    return play

  return make


def test_the_chunk_is_halved_until_it_fits():
  tried, lines = [], []
  round_fn = with_oom_backoff(
    small_memory(2, tried), 'auto', lambda *args: len(args[2]), lines.append
  )
  want = rounds.make_round(counting(), clients_per_chunk=2)(*arguments())
  for _ in range(2):  # the chunk is not searched again
    assert_same_bits(round_fn(*arguments()), want)
  assert tried == [5, 2, 2]
  assert len(lines) == 1 and '5 clients' in lines[0] and 'with 2' in lines[0]


@pytest.mark.parametrize(
  ('chunk', 'holds', 'choice'),
  [('auto', 0, 'batch_size'), (4, 3, 'clients_per_chunk=2')],
)
def test_no_chunk_fits(chunk, holds, choice):
  """No client fits, or not as many as the user asks for."""
  round_fn = with_oom_backoff(small_memory(holds, []), chunk, lambda *args: 5)
  with pytest.raises(BadInput, match='at a time as fit into memory') as error:
    round_fn(*arguments())
  assert choice in str(error.value)
  assert 'RESOURCE_EXHAUSTED' in str(error.value)
