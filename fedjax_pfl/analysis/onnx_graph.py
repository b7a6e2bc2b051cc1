"""A list of steps as a graph of ONNX, from examples `x` to `logits`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedjax_pfl.analysis.layer_list import name_of
from fedjax_pfl.analysis.layer_trace import Step
from fedjax_pfl.core import atomic_files

OPSET, IR = 21, 10  # onnxruntime 1.20 and later read them
FLOAT = 1  # TensorProto.FLOAT
LEAVES = 'weight', 'bias', 'running_mean', 'running_var'  # as operators read


def contents(
  steps: Sequence[Step],
  tensors: Mapping[str, np.ndarray],
  about: Mapping[str, Any],
  name: str,
) -> tuple[bytes]:
  """Return the file; the graph takes any number of examples."""
  from onnx import checker, helper, numpy_helper

  values = ['x', *(f'{step.kind}{n}' for n, step in enumerate(steps[1:], 1))]
  values[-1], nodes, arrays = 'logits', [], dict(tensors)
  for step, value in zip(steps[1:], values[1:], strict=True):
    inputs = [values[number] for number in step.inputs]
    layer = (f'{name_of(step)}.{leaf}' for leaf in LEAVES)
    inputs += [name for name in layer if step.path and name in tensors]
    chain = _operators(step)
    for number, (operator, constants, attributes) in enumerate(chain, 1):
      output = value if number == len(chain) else f'{value}_{number}'
      for at, constant in enumerate(constants):
        inputs.append(f'{output}_{at}' * (constant is not None))
        arrays[inputs[-1]] = constant
      nodes.append(helper.make_node(operator, inputs, [output], **attributes))
      inputs = [output]
  arrays.pop('', None)
  graph = helper.make_graph(
    nodes,
    about['model'],
    [_tensor(helper, 'x', steps[0])],
    [_tensor(helper, 'logits', steps[-1])],
    [numpy_helper.from_array(array, name) for name, array in arrays.items()],
  )
  opset = helper.make_opsetid('', OPSET)
  model = helper.make_model(graph, opset_imports=[opset], ir_version=IR)
  meta = json.dumps(atomic_files.plain(about))
  helper.set_model_props(model, {'meta': meta})
  checker.check_model(model, full_check=True)
  return (model.SerializeToString(),)


def _tensor(helper, name: str, step: Step):
  """Return the description of what a step returns: [B, ch, H, W], or rows."""
  form = (*step.shape[2:], *step.shape[:2])
  return helper.make_tensor_value_info(name, FLOAT, ('B', *form))


def _operators(step: Step) -> list[tuple[str, list, Mapping[str, Any]]]:
  """Return the operators of a step, each of what the one before returns.

  Each with its further inputs, None where it has a default, and attributes.
  """
  sizes = step.sizes
  match step.kind:
    case 'Flatten':
      to_flax = [('Transpose', [], {'perm': (0, 2, 3, 1)})]
      return to_flax * (sizes['axes'] == 4) + [('Flatten', [], {})]
    case 'ReduceMean':
      return [('ReduceMean', [np.array([2, 3])], {'keepdims': 0})]
    case 'normalise':
      mean, std = (np.float32(sizes[n])[:, None, None] for n in ('mean', 'std'))
      constants = {'Div': np.float32(255), 'Sub': mean}
      chain = [(kind, [array], {}) for kind, array in constants.items()]
      return [*chain, ('Div', [std], {})]
    case 'grey':
      return [('Tile', [np.array([1, 3, 1, 1])], {})]
    case 'resize':
      linear = {'axes': (2, 3), 'mode': 'linear', 'antialias': 1}
      return [('Resize', [None, None, np.array(step.shape[:2])], linear)]
  return [(step.kind, [], sizes)]
