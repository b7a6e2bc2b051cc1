"""Rounds that run out of memory; the error is simulated, as on no CPU."""

import jax
import jax.numpy as jnp
import pytest
from counting_method import DATA, counting, start
from helpers import COHORT, KEY, assert_same_bits

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated import rounds
from fedjax_pfl.federated.oom_backoff import with_oom_backoff

pytestmark = pytest.mark.usefixtures('quick_compiler')


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


def arguments():
  return (*start(), jnp.array(COHORT), DATA, KEY(2))


def test_the_chunk_is_halved_until_it_fits():
  tried, lines = [], []
  round_fn = with_oom_backoff(
    small_memory(2, tried), 'auto', lambda *args: len(args[2]), lines.append
  )
  got = round_fn(*arguments())
  assert_same_bits(
    got, rounds.make_round(counting(), clients_per_chunk=2)(*arguments())
  )
  assert tried == [5, 2]
  assert len(lines) == 1 and '5 clients' in lines[0] and 'with 2' in lines[0]
  round_fn(*arguments())
  assert tried == [5, 2, 2]  # not searched again


@pytest.mark.parametrize(
  ('chunk', 'holds', 'choice'),
  [('auto', 0, 'batch_size'), (4, 3, 'clients_per_chunk=2')],
)
def test_memory_for_no_client_and_a_chunk_given_as_a_number(
  chunk, holds, choice
):
  round_fn = with_oom_backoff(small_memory(holds, []), chunk, lambda *args: 5)
  with pytest.raises(BadInput, match='at a time as fit into memory') as error:
    round_fn(*arguments())
  assert choice in str(error.value)
  assert 'RESOURCE_EXHAUSTED' in str(error.value)


def test_another_error_is_raised_as_it_is():
  def play(*args):
    raise jax.errors.JaxRuntimeError('INTERNAL: a kernel failed')

  with pytest.raises(jax.errors.JaxRuntimeError, match='a kernel failed'):
    with_oom_backoff(lambda chunk: play, 'auto', lambda *args: 5)(*arguments())
