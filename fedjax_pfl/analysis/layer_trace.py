"""From a flax module to operators of ONNX, by its trace.

A layer with parameters is one step; between layers stand ReLU, pooling, means,
sums and flattening. Shapes are those of flax, [B, H, W, ch]; sizes have the
names of ONNX.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.extend import core
from jax.typing import DTypeLike

from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.types import Params
from fedjax_pfl.models import layers

BATCH = 2  # rows of a trace
LAYERS = {
  **dict.fromkeys((layers.Conv, layers.DepthwiseConv, nn.Conv), 'Conv'),
  layers.Pointwise: 'Conv',
  **dict.fromkeys((layers.Dense, nn.Dense), 'Gemm'),
  layers.BatchNorm: 'BatchNormalization',
  nn.GroupNorm: 'GroupNormalization',
}
# Stands for a layer of these in a trace, beside its own equations.
LAYER = core.Primitive('layer')
LAYER.def_abstract_eval(lambda x, y, **_: y)
INNER = {'jit': 'jaxpr', 'custom_jvp_call': 'call_jaxpr'}
MEANS = {'reduce_sum': 'ReduceMean', 'reduce_window_sum': 'AveragePool'}


class Step(NamedTuple):
  """An operator on what earlier steps return."""

  kind: str
  inputs: tuple[int, ...]  # numbers of steps
  shape: tuple[int, ...]  # of what it returns, without rows
  sizes: Mapping[str, Any]
  path: tuple[str, ...] = ()  # of its parameters, if it has some


def refusal(got: str) -> BadInput:
  """Return the exception for a network that has no such steps."""
  return bad_input(
    'to',
    got=got,
    expected='one network of convolutions, dense layers, BatchNorm, GroupNorm, '
    'ReLU, tanh, sigmoid, pooling, means over pixels, sums and flattening, '
    'those of flax.linen or fedjax_pfl.models.layers',
    choices=['npz'],
  )


def trace(
  logits: Callable, params: Params, dtype: DTypeLike, steps: list[Step]
) -> None:
  """Add the steps of logits(params, x, mask), where x is the last of them."""

  def record(call, args, kwargs, context):
    y, module = call(*args, **kwargs), context.module
    kind = LAYERS.get(type(module))
    if kind is None or context.method_name != '__call__':
      return y
    sizes = {'transB': 1} if kind == 'Gemm' else {}
    if kind.endswith('Normalization'):
      sizes = {'epsilon': getattr(module, 'epsilon', 1e-5)}
    if isinstance(module, nn.GroupNorm):
      groups = module.num_groups or y.shape[-1] // module.group_size
      sizes['num_groups'] = groups
    return LAYER.bind(args[0], y, kind=kind, path=module.path, **sizes)

  x = jax.ShapeDtypeStruct((BATCH, *steps[-1].shape), dtype)
  with nn.intercept_methods(record):
    traced = jax.make_jaxpr(logits)(params, x, jnp.ones(BATCH))
  leaves = [None] * len(jax.tree.leaves(params))
  results = _add(steps, traced.jaxpr, [*leaves, len(steps) - 1, None])
  if results != [len(steps) - 1]:
    raise refusal('logits that are not the result of the last layer')


def _add(steps: list[Step], jaxpr: core.Jaxpr, values: list) -> list:
  """Add the steps of a jaxpr; return the values of its results.

  A value is the number of a step; None, if it does not depend on the input; or
  a Step: a sum that is not divided yet.
  """
  known = dict(zip(jaxpr.invars, values, strict=True))
  makers = {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}
  for eqn in _needed(jaxpr):
    given = [None if _is_literal(v) else known.get(v) for v in eqn.invars]
    if all(value is None for value in given):
      continue
    if name := INNER.get(eqn.primitive.name):
      results = _add(steps, eqn.params[name].jaxpr, given)
    else:
      results = [_value(steps, eqn, given, makers)]
    known |= zip(eqn.outvars, results, strict=True)
  return [known.get(var) for var in jaxpr.outvars]


def _is_literal(atom: core.Var | core.Literal) -> bool:
  return isinstance(atom, core.Literal)


def _needed(jaxpr: core.Jaxpr) -> list[core.JaxprEqn]:
  """Return the equations that the results depend on; of layers the input."""
  wanted, needed = {*jaxpr.outvars}, []
  for eqn in reversed(jaxpr.eqns):
    if not wanted.isdisjoint(eqn.outvars):
      needed.append(eqn)
      inputs = eqn.invars[: 1 if eqn.primitive is LAYER else None]
      wanted.update(var for var in inputs if not _is_literal(var))
  return needed[::-1]


def _value(steps: list[Step], eqn: core.JaxprEqn, given: list, makers) -> Any:
  """Return the value of an equation, whose step is added."""
  name, (first, *others) = eqn.primitive.name, given
  if name == 'convert_element_type':
    return first
  path, step = eqn.params.get('path', ()), None
  literals = [v.val for v in eqn.invars if _is_literal(v)]
  if isinstance(first, Step):  # a sum
    if name == 'div' and literals == [first.sizes['number']]:
      step = first._replace(sizes=first.sizes['sizes'])
  elif operator := _operator(eqn, literals, makers):
    inputs = (first,) if name == 'layer' or literals else (first, *others)
    (kind, sizes), shape = operator, eqn.outvars[0].aval.shape[1:]
    step = Step(kind, inputs, shape, sizes, path)
    if name in MEANS:
      return step
  if step is None or not all(isinstance(n, int) for n in step.inputs):
    layer = '/'.join(path) or eqn.source_info.name_stack
    raise refusal(f'{eqn.params.get("kind", name)} in {layer}')
  steps.append(step)
  return len(steps) - 1


def _operator(eqn: core.JaxprEqn, literals: list, makers) -> tuple | None:
  """Return the operator of an equation and its sizes, or None."""
  name, params = eqn.primitive.name, eqn.params
  old, new = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
  match name:
    case 'layer':
      return _layer(eqn, makers)
    case 'tanh' | 'logistic':
      return {'tanh': 'Tanh', 'logistic': 'Sigmoid'}[name], {}
    case 'max' if literals == [0]:
      return 'Relu', {}
    case 'add' if not literals and old == new:
      return 'Add', {}
    case 'reshape' if len(new) == 2 and new[0] == BATCH:
      return 'Flatten', {'axes': len(old)}
    case 'reduce_sum' if len(old) == 4 and params['axes'] == (1, 2):
      return MEANS[name], {'number': old[1] * old[2], 'sizes': {}}
    case 'reduce_window_max' | 'reduce_window_sum' if len(old) == 4:
      rows, *kernel, channels = params['window_dimensions']
      window = _window(
        params['window_strides'][1:3],
        params['padding'][1:3],
        params['window_dilation'] + params['base_dilation'],
      )
      if window is None or (rows, channels) != (1, 1):
        return None
      window['kernel_shape'] = tuple(kernel)
      if name == 'reduce_window_max':
        return 'MaxPool', window
      window['count_include_pad'] = 1
      return MEANS[name], {'number': math.prod(kernel), 'sizes': window}
  return None


def _layer(eqn: core.JaxprEqn, makers) -> tuple[str, dict] | None:
  """Return the operator of a layer with parameters, and its sizes."""
  x, y = eqn.invars
  kind, sizes = eqn.params['kind'], {**eqn.params}
  if x.aval.ndim not in {'Conv': (4,), 'Gemm': (2,)}.get(kind, (2, 4)):
    return None
  if kind != 'Conv':
    return kind, {n: v for n, v in sizes.items() if n not in ('kind', 'path')}
  conv = makers[y]
  while conv.primitive.name != 'conv_general_dilated':
    conv = makers[conv.invars[0]]  # without the bias
  sizes = conv.params
  dilations = sizes['lhs_dilation'] + sizes['rhs_dilation']
  window = _window(sizes['window_strides'], sizes['padding'], dilations)
  if conv.invars[0] is not x or window is None:
    return None
  return kind, {'group': sizes['feature_group_count'], **window}


def _window(strides, padding, dilations) -> dict[str, Any] | None:
  """Return the sizes of a window, or None: it has gaps, or unequal sides."""
  if {*dilations} != {1} or any(low != high for low, high in padding):
    return None
  return {'strides': strides, 'pads': tuple(low for low, _ in padding) * 2}
