"""The work of a program by its jaxpr: nothing is compiled, a loop counts once.

FLOPs          2 x results x inputs of each, of products and convolutions
activations    bytes of their results, and of patches: what else is computed
               is fused with them, or takes the memory of what was read before
"""

import math
from typing import NamedTuple

from jax.extend import core

HELD = {'dot_general', 'conv_general_dilated', 'concatenate'}


class Work(NamedTuple):
  """Of a client in a round: a step of each of its fits."""

  flops: int = 0
  activations: int = 0  # bytes


def work_of(jaxpr: core.Jaxpr) -> Work:
  """Return the work of a jaxpr, and of those that it calls."""
  total = Work()
  for eqn in jaxpr.eqns:
    inner = map(work_of, core.jaxprs_in_params(eqn.params))
    parts = zip(total, _work_of_one(eqn), *inner, strict=True)
    total = Work(*map(sum, parts))
  return total


def _work_of_one(eqn: core.JaxprEqn) -> Work:
  name, results = eqn.primitive.name, eqn.outvars[0].aval if eqn.outvars else ()
  if name not in HELD:
    return Work()
  terms = 0
  if name == 'dot_general':
    (axes, _), _ = eqn.params['dimension_numbers']
    terms = math.prod(eqn.invars[0].aval.shape[axis] for axis in axes)
  elif name == 'conv_general_dilated':
    kernel = eqn.invars[1].aval
    terms = kernel.size // kernel.shape[eqn.params['dimension_numbers'][1][0]]
  size = results.size
  return Work(2 * size * terms, size * results.dtype.itemsize)
