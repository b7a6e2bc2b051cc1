"""The network of an experiment as a list of steps, from examples to logits."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from fedjax_pfl.analysis.layer_trace import Step, refusal, trace
from fedjax_pfl.core import norm_stats
from fedjax_pfl.core.types import Params
from fedjax_pfl.data.images import IMAGE
from fedjax_pfl.data.transforms import find_recipe
from fedjax_pfl.models import lora
from fedjax_pfl.models.public_checkpoints import PUBLIC
from fedjax_pfl.training.build import Experiment

# What PyTorch calls them.
LEAVES = {
  'kernel': 'weight',
  'scale': 'weight',
  'bias': 'bias',
  norm_stats.MEAN: 'running_mean',
  norm_stats.VAR: 'running_var',
}


def layer_list(experiment: Experiment) -> list[Step]:
  """Return the steps; the first one has the shape of an example."""
  task = experiment.task
  if task.others or task.plain_logits is None:
    raise refusal('several architectures, or a head of frozen_features')
  steps = _input_steps(experiment)
  params = jax.eval_shape(task.init, jax.random.key(0))
  given = experiment.outline.shape.dtype
  dtype = jnp.result_type(float if given == IMAGE else given)
  trace(task.plain_logits, params, dtype, steps)
  names = {step.path: name_of(step) for step in steps}
  if len({*names.values()}) < len(names):
    raise refusal(f'layers that share a name: {sorted(names.values())}')
  return steps


def _input_steps(experiment: Experiment) -> list[Step]:
  """Return the steps from an example to the input of the network."""
  data, model = experiment.settings.data, experiment.settings.model
  shape, side = experiment.outline.shape, model.model_image_size
  form = shape.image_shape
  steps = [Step('input', (), form, {})]

  def add(kind: str, form: tuple[int, ...], **sizes: Any) -> None:
    steps.append(Step(kind, (len(steps) - 1,), form, sizes))

  if shape.dtype != IMAGE:
    return steps
  if model.name in PUBLIC and form[2:] == (1,):
    add('grey', form := (*form[:2], 3))
  recipe = find_recipe(data.dataset, data.preprocessing)
  add('normalise', form, mean=recipe.mean, std=recipe.std)
  if side:
    add('resize', (side, side, form[2]))
  return steps


def name_of(step: Step) -> str:
  """Return the name of a layer where names have no parts."""
  return '_'.join(step.path)


def tensors_of(
  steps: Sequence[Step], model: Params, about: Mapping[str, Any]
) -> dict[str, np.ndarray]:
  """Return the parameters by the names of PyTorch, and in its layout."""
  if about['rule']['name'] != 'network':
    raise refusal(f'another rule than one network: {about["rule"]["text"]}')
  if rank := about.get('lora_rank'):
    model = lora.merged(model, about['lora_alpha'] / rank)
  tensors, layers = {}, {step.path: step for step in steps}
  for (*path, leaf), array in flatten_dict(model).items():
    step, array = layers.get(tuple(path)), np.asarray(array)
    if step is None or leaf not in LEAVES:
      raise refusal(f'parameters {"/".join((*path, leaf))}')
    if leaf == 'kernel':
      array = _weight(step.kind, array)
    name = f'{name_of(step)}.{LEAVES[leaf]}'
    tensors[name] = np.ascontiguousarray(array)
  return tensors


def _weight(kind: str, kernel: np.ndarray) -> np.ndarray:
  """Return a kernel [.., in, out] as [out, in, ..]."""
  if kind == 'Gemm':
    return kernel.T
  if kernel.ndim == 3:  # [k, k, C]: each channel has one of its own
    kernel = kernel[:, :, None]
  if kernel.ndim == 2:  # [in, out], of one pixel
    kernel = kernel[None, None]
  return kernel.transpose(3, 2, 0, 1)
