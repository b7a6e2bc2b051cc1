"""Run a function with the project's convolutions, pooling and BatchNorm.

The function is traced, and its jaxpr is evaluated equation by equation. An
equation that has a rule gives a deferred `Layer` in place of an array; what
reads one extends it (a bias, a ReLU, a pooling), and all other equations
compute it first. What has no rule stays as it is, and is named once in the log.

Differentiate the result, not the argument: the layers have gradients of their
own, for reverse mode; jax.jvp refuses functions that have one.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from absl import logging
from jax.extend import core

from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.target import card
from fedjax_pfl.models.ops.batch_norm import MASKED_NORM
from fedjax_pfl.models.ops.fuse import Layer, compute
from fedjax_pfl.models.ops.replacements import WAYS, Way

CONV_IMPLS = ('auto', 'lax', 'fused', 'gemm')
# Equations that run jaxprs of their own, in these parameters.
INNER = {
  'scan': ('jaxpr',),
  'while': ('cond_jaxpr', 'body_jaxpr'),
  'cond': ('branches',),
}
LAYERS = {'conv_general_dilated', 'reduce_window_max'}


def replace_layers(fn: Callable, conv_impl: str = 'auto') -> Callable:
  """Return fn with the layers that the project computes faster.

  Equal up to rounding, gradients too; of equal pixels under a max-pooling the
  first has the gradient.

  Args:
    fn: a function of pytrees of arrays, without side effects.
    conv_impl: 'gemm': matrix products, for a CPU; 'fused': XLA's convolutions
      with few passes over memory around them, for accelerators; 'lax':
      max-pooling alone; 'auto': as suits the device.

  Returns:
    A function of the same arguments, by place or by name; differentiate it in
    reverse mode, map it, compile it. It may read traced arrays of a function
    around it.

  >>> import flax.linen as nn
  >>> def layer(x, kernel):
  ...   y = jax.lax.conv_general_dilated(
  ...     x, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
  ...   return nn.max_pool(nn.relu(y), (2, 2), (2, 2))
  >>> x, kernel = jnp.ones((5, 8, 8, 3)), jnp.ones((3, 3, 3, 4))
  >>> y = jax.jit(pfl.replace_layers(layer))(x, kernel)
  >>> y.shape, bool(jnp.allclose(y, layer(x, kernel)))
  ((5, 4, 4, 4), True)
  """
  resolve(conv_impl)
  # Finds what it has traced for these shapes; what fn closes over is in consts.
  trace = jax.make_jaxpr(fn, return_shape=True)

  @functools.wraps(fn)
  def replaced(*args, **kwargs):
    closed, out = trace(*args, **kwargs)
    way = WAYS[resolve(conv_impl)]
    leaves = jax.tree.leaves((args, kwargs))
    results = _evaluate(way, closed.jaxpr, closed.consts, *leaves)
    return jax.tree.unflatten(jax.tree.structure(out), results)

  return replaced


def resolve(conv_impl: str) -> str:
  """Return the implementation; 'auto' is that of the target."""
  known = 'a known implementation of convolutions'
  one_of(CONV_IMPLS, known).check('conv_impl', conv_impl)
  return card().conv_impl if conv_impl == 'auto' else conv_impl


def _evaluate(way: Way, jaxpr: core.Jaxpr, consts, *args) -> list:
  """Return the results of a jaxpr as arrays."""
  return [compute(value) for value in _run(way, jaxpr, consts, args)]


def _run(way: Way, jaxpr: core.Jaxpr, consts, args) -> list:
  """Return the results of a jaxpr, of which some may be deferred."""
  values = dict(zip(jaxpr.constvars, consts, strict=True))
  values |= zip(jaxpr.invars, args, strict=True)

  def read(atom) -> Any:
    return atom.val if isinstance(atom, core.Literal) else values[atom]

  for eqn in jaxpr.eqns:
    with eqn.ctx.manager:
      results = _equation(way, eqn, [read(atom) for atom in eqn.invars])
    values |= zip(eqn.outvars, results, strict=True)
  return [read(atom) for atom in jaxpr.outvars]


def _equation(way: Way, eqn: core.JaxprEqn, inputs: list) -> Sequence:
  """Return the results of one equation."""
  name = eqn.primitive.name
  if name in way.rules and not _is_empty(eqn):
    result = way.rules[name](eqn, *inputs)
    if isinstance(result, Layer):
      return [result.placed(eqn.outvars[0].aval.shape, way.fuse)]
    if result is not None:
      return [result]
    if name in LAYERS and way is WAYS['gemm']:
      _log_once(name, *(str(atom.aval) for atom in eqn.invars))
  if name == 'jit' and _is_concerned(eqn.params['jaxpr'].jaxpr):
    inner = eqn.params['jaxpr']
    return _run(way, inner.jaxpr, inner.consts, inputs)
  return _bind(way, eqn, [compute(value) for value in inputs])


def _is_empty(eqn: core.JaxprEqn) -> bool:
  """Return whether an array has no numbers: XLA knows best what follows.

  An empty batch; or the result of a window that is larger than the image.
  """
  avals = [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
  return any(0 in getattr(aval, 'shape', ()) for aval in avals)


def _bind(way: Way, eqn: core.JaxprEqn, inputs: list[jax.Array]) -> Sequence:
  """Return the results of an equation as jax has it; inner ones replaced."""
  params = dict(eqn.params)
  if eqn.primitive.name == 'remat2' and _is_concerned(params['jaxpr']):
    inner = functools.partial(_evaluate, way, params['jaxpr'], ())
    prevent_cse, policy = params['prevent_cse'], params['policy']
    inner = jax.checkpoint(inner, prevent_cse=prevent_cse, policy=policy)
    return inner(*inputs)
  for name in INNER.get(eqn.primitive.name, ()):
    params[name] = jax.tree.map(
      functools.partial(_replaced, way),
      params[name],
      is_leaf=lambda leaf: isinstance(leaf, core.ClosedJaxpr),
    )
  return _apply(eqn.replace(params=params), inputs)


def _apply(eqn: core.JaxprEqn, inputs: list[jax.Array]) -> Sequence:
  """Return the results of one equation, evaluated as a jaxpr of its own.

  `Primitive.bind` takes other parameters than an equation has, for calls of
  functions; a jaxpr is evaluated the same way in all versions of JAX.
  """
  values = {
    atom: value
    for atom, value in zip(eqn.invars, inputs, strict=True)
    if not isinstance(atom, core.Literal)
  }
  about = core.DebugInfo('replace_layers', eqn.primitive.name, None, None)
  jaxpr = core.Jaxpr((), [*values], eqn.outvars, [eqn], eqn.effects, about)
  return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ()))(*values.values())


def _replaced(way: Way, closed: core.ClosedJaxpr) -> core.ClosedJaxpr:
  if not _is_concerned(closed.jaxpr):
    return closed
  inner = functools.partial(_evaluate, way, closed.jaxpr, closed.consts)
  shapes = [
    jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)
    for aval in closed.in_avals
  ]
  return jax.make_jaxpr(inner)(*shapes)


@functools.lru_cache(maxsize=4096)  # JAX traces a jitted function once, too
def _is_concerned(jaxpr: core.Jaxpr) -> bool:
  """Return whether a layer is somewhere in the jaxpr."""
  return any(
    eqn.primitive.name in LAYERS
    or eqn.params.get('name') == MASKED_NORM
    or any(map(_is_concerned, core.jaxprs_in_params(eqn.params)))
    for eqn in jaxpr.eqns
  )


@functools.cache
def _log_once(name: str, *shapes: str) -> None:
  what = f'{name} of {" and ".join(shapes)}'
  logging.warning('%s stays as it is, and may be slow on a CPU', what)
