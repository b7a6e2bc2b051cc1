"""Rules of settings: those of every method, and traced numbers."""

import math
import typing

import jax
import pytest
from helpers import every_method, make_task

from fedjax_pfl.algorithms import load
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.rules import equals


@every_method()
def test_defaults_keep_the_rules_and_no_number_may_be_infinite(name):
  hp = load(name).HParams()
  for field, hint in typing.get_type_hints(type(hp)).items():
    if float not in (hint, *typing.get_args(hint)):
      continue
    for bad in (math.nan, math.inf, -math.inf):
      with pytest.raises(BadInput, match=f'^hp.{field}: got'):
        hp._replace(**{field: bad})


def test_a_traced_number_is_not_checked_again():
  module = load('fedprox')

  @jax.jit
  def built(mu):
    module.build(make_task(), module.HParams(mu=mu))
    return equals(mu, 0)

  assert not built(-1.0) and equals(0, 0.0) and not equals(0.1, 0)
