"""Low-rank adapters (LoRA, Hu et al. 2022) beside the kernels of any module.

  W' = W + (alpha / r) A B      A [in, r], B [r, out]

W [.., in, out] is the kernel of a dense layer, of a product of attention, or of
a convolution, whose first axes count as inputs. A and B lie beside it as the
leaves `lora_a` and `lora_b`. A begins as U(-1/sqrt(in), 1/sqrt(in)), B at 0:
the model begins as the one without adapters, to the bit.

Differs from the paper: W' is computed once a step, and x W' takes the place of
x W + (alpha / r) x A B, the same function but for rounding: in mixed precision
W' is bfloat16, and a change of an entry by less than 1/512 of it is lost. A
step takes as long as one of full training, and as one by the paper's products,
which a CPU computes slowly for their r columns.
"""

import math
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from fedjax_pfl.core import rules
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Key, Params
from fedjax_pfl.models import layers
from fedjax_pfl.models.module_functions import ModuleFunctions, functions_of

A, B = 'lora_a', 'lora_b'
STREAM = 0x10A  # of the key of a model's first parameters, for the adapters


def is_adapter(name: str) -> bool:
  """Return whether the leaf at this path is one of an adapter."""
  return name.rpartition('/')[2] in (A, B)


def with_lora(
  module: Any, rank: int, targets: Collection[str] = ('*',), alpha: float = 16.0
) -> ModuleFunctions:
  """Return the module with low-rank adapters of its kernels.

  Args:
    module: what `task_from_module` takes, of flax.linen or flax.nnx.
    rank: r, of each product A B.
    targets: patterns of the shell for paths of layers: 'block*/qkv'. '*' are
      all layers with a kernel but the head, which never has an adapter.
    alpha: over r it is the factor of A B.

  Returns:
    What `task_from_module` takes in the place of the module.

  >>> import flax.linen as nn
  >>> class Perceptron(nn.Module):
  ...   def setup(self):
  ...     self.body, self.head = nn.Dense(16), nn.Dense(10)
  ...   def features(self, x, mask):
  ...     return nn.relu(self.body(x.reshape(len(x), -1)))
  >>> task = pfl.task_from_module(
  ...   pfl.with_lora(Perceptron(), rank=2),
  ...   image_shape=(8, 8, 1), num_classes=10)
  >>> params = task.init(jax.random.key(0))
  >>> params['body']['lora_a'].shape, params['body']['lora_b'].shape
  ((64, 2), (2, 16))
  """
  rules.count('dimensions', 'no rank: then leave it out').check('rank', rank)
  functions, targets = functions_of(module), tuple(targets)

  def begin(key, x, mask):
    outputs, params = functions.begin(key, x, mask)  # B A is 0: the same
    return outputs, _with_leaves(params, key, rank, targets)

  def apply(method, params, *args):
    return functions.apply(method, merged(params, alpha / rank), *args)

  return functions._replace(begin=begin, apply=apply)


def merged(params: Params, factor: float) -> Params:
  """Return the parameters of the module itself, with W' for each W."""
  flat = flatten_dict(params)
  for path in [path for path in flat if path[-1] == A]:
    a, b = flat.pop(path), flat.pop((*path[:-1], B))
    kernel = (*path[:-1], 'kernel')
    flat[kernel] += (factor * (a @ b)).reshape(flat[kernel].shape)
  return unflatten_dict(flat)


def _with_leaves(
  params: Params, key: Key, rank: int, targets: tuple[str, ...]
) -> Params:
  """Return the parameters with A and B of each target, which may be none."""
  flat = flatten_dict(params)
  kernels = {
    '/'.join(path[:-1]): path[:-1]
    for path, leaf in flat.items()
    if path[-1] == 'kernel' and leaf.ndim > 1 and path[0] != 'head'
  }
  if not kernels:
    raise bad_input(
      'lora_rank',
      got=rank,
      expected='a model with adapters: a layer besides the head with a '
      'parameter `kernel` of two axes or more',
      choices=['lora_rank=0'],
      cause='char_lstm, or a model whose layers call their matrices otherwise',
    )
  for pattern in targets:
    if not any(fnmatchcase(name, pattern) for name in kernels):
      raise bad_input(
        'lora_targets',
        got=pattern,
        expected='a pattern that matches the path of a layer with a kernel',
        choices=['*', *kernels],
        cause='a layer of another model, or the head, which is trained itself',
      )
  key = jax.random.fold_in(key, STREAM)
  for number, (name, path) in enumerate(kernels.items()):
    if not any(fnmatchcase(name, pattern) for pattern in targets):
      continue
    # An attention's query is [in, heads, out of each], as its bias shows.
    kernel, bias = (flat.get((*path, leaf)) for leaf in ('kernel', 'bias'))
    ends = 1 if bias is None else bias.ndim
    size = math.prod(kernel.shape[:-ends])
    outputs, dtype = math.prod(kernel.shape[-ends:]), kernel.dtype
    layer_key = jax.random.fold_in(key, number)
    draw = layers.uniform(size)
    flat[*path, A] = draw(layer_key, (size, rank)).astype(dtype)
    flat[*path, B] = jnp.zeros((rank, outputs), dtype)
  return unflatten_dict(flat)
