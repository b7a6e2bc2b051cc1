"""Memory that is too small, feigned: a CPU has too much of it to fail."""

import jax
import jax.numpy as jnp
import pytest
from counting_method import DATA, counting, start
from helpers import COHORT, KEY, assert_same_bits

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated import rounds
from fedjax_pfl.federated.oom_backoff import until_it_fits

pytestmark = pytest.mark.usefixtures('quick_compiler')


def small_memory(holds, tried):
  """Return a maker of rounds that fail above so many clients side by side."""

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


def test_half_as_many_until_memory_holds_them():
  tried, said = [], []
  round_fn = until_it_fits(
    small_memory(2, tried), 'auto', lambda *args: len(args[2]), said.append
  )
  got = round_fn(*arguments())
  assert_same_bits(
    got, rounds.make_round(counting(), clients_per_chunk=2)(*arguments())
  )
  assert tried == [5, 2]
  assert len(said) == 1 and '5 clients' in said[0] and 'with 2' in said[0]
  round_fn(*arguments())
  assert tried == [5, 2, 2]  # what was found out is kept


@pytest.mark.parametrize(
  ('chunk', 'holds', 'choice'),
  [('auto', 0, 'batch_size'), (4, 3, 'clients_per_chunk=2')],
)
def test_memory_that_holds_none_and_a_chunk_that_was_asked_for(
  chunk, holds, choice
):
  round_fn = until_it_fits(small_memory(holds, []), chunk, lambda *args: 5)
  with pytest.raises(BadInput, match='side by side as memory holds') as error:
    round_fn(*arguments())
  assert choice in str(error.value)
  assert 'RESOURCE_EXHAUSTED' in str(error.value)


def test_another_failure_is_not_taken_for_one_of_memory():
  def make(chunk):
    def play(*args):
      raise jax.errors.JaxRuntimeError('INTERNAL: a kernel failed')

    return play

  with pytest.raises(jax.errors.JaxRuntimeError, match='a kernel failed'):
    until_it_fits(make, 'auto', lambda *args: 5)(*arguments())
