"""A list of steps as a module of PyTorch that somebody can read and change."""

import json
from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np

from fedjax_pfl.analysis.layer_list import name_of
from fedjax_pfl.analysis.layer_trace import Step
from fedjax_pfl.core import atomic_files

# Of the texts of its inputs.
CALLS = {
  'Relu': 'F.relu({})',
  'Tanh': 'torch.tanh({})',
  'Sigmoid': 'torch.sigmoid({})',
  'Add': '{} + {}',
  'grey': 'torch.cat([{}] * 3, 1)',
  'normalise': '({} / 255 - mean) / std',
  'resize': "F.interpolate({}, {size}, mode='bilinear', antialias=True)",
  'ReduceMean': 'torch.mean({}, (2, 3))',
  'Flatten': 'torch.flatten({}, 1)',
  'MaxPool': 'F.max_pool2d({}, {window})',
  'AveragePool': 'F.avg_pool2d({}, {window})',
}
BEGIN = {'Conv', 'Gemm', 'Flatten', 'ReduceMean'}  # a line, with what they read
VARIABLES = ['x', 'y', 'z', *(f'x{number}' for number in range(100))]
HEAD = '''"""{model}, of {algorithm}: {of}.

fedjax-pfl wrote it, with the parameters in {file}:

  from safetensors.torch import load_file
  network = Network()
  network.load_state_dict(load_file('{file}'))
  logits = network.eval()(x)  # x {shape}{range}
"""

import torch
from torch import nn
from torch.nn import functional as F


class Network(nn.Module):
  def __init__(self):
    super().__init__()
'''


def contents(
  steps: Sequence[Step],
  tensors: Mapping[str, np.ndarray],
  about: Mapping[str, Any],
  name: str,
) -> tuple[bytes, bytes]:
  """Return a file of safetensors, and the text of a module that reads it."""
  from safetensors.numpy import save

  metadata = {'meta': json.dumps(atomic_files.plain(about))}
  form, has_range = steps[0].shape, any(s.kind == 'normalise' for s in steps)
  client = about.get('client_name', about['client'])
  head = HEAD.format(
    model=about['model'],
    algorithm=about['algorithm'],
    of='the server' if client == 'server' else f'client {client}',
    file=name,
    shape=f'[B, {", ".join(map(str, (*form[2:], *form[:2])))}]',
    range=', from 0 to 255' * has_range,
  )
  layers = {step.path: step for step in steps if step.path}.values()
  lines = [f'    self.{name_of(s)} = {_declared(s, tensors)}' for s in layers]
  text = '\n'.join([head.rstrip(), *lines, '', *_forward(steps), ''])
  return save(dict(tensors), metadata), text.encode()


def _declared(step: Step, tensors: Mapping[str, np.ndarray]) -> str:
  """Return the text that makes a layer."""
  sizes, name, options = step.sizes, name_of(step), []
  outputs, *inputs = tensors[f'{name}.weight'].shape
  match step.kind:
    case 'Gemm':
      kind, arguments = 'Linear', [*inputs, outputs]
    case 'Conv':
      group, sides = sizes['group'], [_side(inputs[1:]), *_strides(sizes)]
      kind, arguments = 'Conv2d', [inputs[0] * group, outputs, sides[0]]
      names = f'stride={sides[1]}', f'padding={sides[2]}', f'groups={group}'
      unusual = sides[1] != 1, sides[2] != 0, group > 1
      options = [*compress(names, unusual)]
    case 'BatchNormalization':
      kind, arguments = f'BatchNorm{len(step.shape) // 2 + 1}d', [outputs]
      if f'{name}.running_mean' not in tensors:
        options = ['track_running_stats=False']
    case 'GroupNormalization':
      groups = [sizes['num_groups'], outputs, sizes['epsilon']]
      kind, arguments = 'GroupNorm', groups
  if f'{name}.bias' not in tensors:
    options.append('bias=False')
  return f'nn.{kind}({", ".join(map(str, [*arguments, *options]))})'


def _strides(sizes: Mapping[str, Any]) -> list:
  """Return stride and padding."""
  return [_side(sizes['strides']), _side(sizes['pads'][:2])]


def _side(sizes: Sequence[int]) -> int | tuple[int, ...]:
  """Return sizes that are equal as a number."""
  return sizes[0] if len({*sizes}) == 1 else tuple(sizes)


def _forward(steps: Sequence[Step]) -> list[str]:
  """Return the lines of `forward`.

  What the next step alone reads stands within its call, but for the input of a
  convolution or a dense layer, with which a line begins.
  """
  lines = ['  def forward(self, x):']
  readers = [
    [n for n, step in enumerate(steps) if number in step.inputs]
    for number in range(len(steps))
  ]
  texts = {0: 'x'}
  for number, step in enumerate(steps[1:], 1):
    if step.kind == 'normalise':
      constants = [[*step.sizes[name]] for name in ('mean', 'std')]
      tensor = f'x.new_tensor({constants})[..., None, None]'
      lines.append(f'    mean, std = {tensor}')
    texts[number] = _called(step, [texts[n] for n in step.inputs])
    if not readers[number]:
      return [*lines, f'    return {texts[number]}']
    if readers[number] != [number + 1] or steps[number + 1].kind in BEGIN:
      busy = {texts[n] for n in range(number) if readers[n][-1] > number}
      free = next(name for name in VARIABLES if name not in busy)
      lines.append(f'    {free} = {texts[number]}')
      texts[number] = free
  return lines


def _called(step: Step, inputs: Sequence[str]) -> str:
  """Return the text of a step, of the texts of its inputs."""
  if step.path:
    return f'self.{name_of(step)}({inputs[0]})'
  if step.kind == 'Flatten' and step.sizes['axes'] == 4:
    inputs = [f'torch.permute({inputs[0]}, (0, 2, 3, 1))']
  window = ''
  if kernel := step.sizes.get('kernel_shape'):
    sides = [_side(kernel), *_strides(step.sizes)]
    sides = sides[:1] if sides[1:] == [sides[0], 0] else sides
    window = ', '.join(map(str, sides))
  return CALLS[step.kind].format(*inputs, size=step.shape[:2], window=window)
