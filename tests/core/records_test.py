"""Records of settings: a field is stated once, and a bad value is refused."""

import dataclasses
import math
import typing

import jax
import numpy as np
import pytest
from helpers import every_method, make_task, refused

from fedjax_pfl.algorithms import load
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.records import EVALUATES, field, record
from fedjax_pfl.core.rules import count, equals, tuple_of


@record('nap.')
class Nap:
  """How a client naps.

  Args:
    length: rounds
      of a nap
    places: where
    seed: of a run.
  """

  length: int = field(2, count('rounds'), EVALUATES)
  places: tuple[str, ...] = field(
    (), tuple_of(str.isalpha, 'words'), name='where'
  )
  seed: int = 0


def test_a_field_has_a_name_in_configs_and_its_line_of_help():
  length, places = Nap.ruled['length'], Nap.ruled['places']
  assert (length.name, length.help) == ('nap.length', 'rounds of a nap')
  assert (places.name, places.changes) == ('where', frozenset({'training'}))
  assert 'seed' not in Nap.ruled  # a run fills it in


def test_a_record_refuses_bad_values_whenever_it_is_made():
  nap = Nap(np.int64(3), ['bed'])
  assert (type(nap.length), nap.places) == (int, ('bed',))
  assert nap._replace(seed=1) == Nap(3, ('bed',), 1) != nap
  words = 'nap.length: got 0, expected a whole number of rounds, 1 or more.'
  assert refused(Nap, 0) == refused(lambda: nap._replace(length=0)) == words
  assert refused(Nap, 2**31).startswith('nap.length: got 2147483648, expected')
  assert refused(Nap, 2, ['1']).startswith('where: got ')
  with pytest.raises(dataclasses.FrozenInstanceError):
    nap.length = 0


def test_a_traced_number_has_been_checked_before():
  traced = []
  jax.eval_shape(lambda length: traced.append(Nap(length).length) or 0, -1)
  assert isinstance(traced[0], jax.core.Tracer)


# ---- those of every method


@every_method()
def test_defaults_keep_the_rules_and_no_number_may_be_infinite(name):
  hp = load(name).HParams()
  for name, hint in typing.get_type_hints(type(hp)).items():
    if float not in (hint, *typing.get_args(hint)):
      continue
    for bad in (math.nan, math.inf, -math.inf):
      with pytest.raises(BadInput, match=f'^hp.{name}: got'):
        hp._replace(**{name: bad})


def test_a_traced_number_is_not_checked_again():
  module = load('fedprox')

  @jax.jit
  def built(mu):
    module.build(make_task(), module.HParams(mu=mu))
    return equals(mu, 0)

  assert not built(-1.0) and equals(0, 0.0) and not equals(0.1, 0)
