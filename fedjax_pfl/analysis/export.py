"""Export one model of a finished run: `chosen_model` computes which.

  npz    an array a leaf, and a JSON string `meta` (runs/model_file.py): numpy
         alone reads it
  torch  tensors with the names and layout of PyTorch in .safetensors, and the
         module that reads them in .py beside it
  onnx   a graph from images to logits

The last two are of networks of layers that others have: `layer_list`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from fedjax_pfl.analysis import onnx_graph, open_run, torch_module
from fedjax_pfl.analysis.chosen_model import (
  SERVER,
  Owner,
  client_names,
  global_model,
  model_of,
  owner_of,
)
from fedjax_pfl.analysis.layer_list import layer_list, tensors_of
from fedjax_pfl.analysis.model_header import TOGETHER, header, private_header
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input, check_installed
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.privacy_budget import budget_of

SUFFIXES = {
  'npz': ['.npz'],
  'torch': ['.safetensors', '.py'],
  'onnx': ['.onnx'],
}
PACKAGES = {'torch': 'safetensors', 'onnx': 'onnx'}  # which write the files


def export(
  workdir: AnyPath,
  client: str,
  view: str,
  output: AnyPath,
  log: open_run.Log,
  edit: open_run.Edit | None,
  private: bool = False,
  to: str = 'npz',
) -> Path:
  """Write a model of the run to `output`; return its path.

  `client` is a name, a number or 'server'; without a view it is that of the
  result. With `private` the file holds what the budget of the run covers, no
  more. `to` is one of `SUFFIXES`.
  """
  one_of(SUFFIXES, 'a known format').check('to', to)
  path = check_output(output, SUFFIXES[to][0])
  for suffix in SUFFIXES[to][1:]:
    check_output(path.with_suffix(suffix), suffix)
  if to in PACKAGES:
    check_installed('to', PACKAGES[to], ['npz'])
  settings, data = open_run.read_run(workdir, log, edit, moved=True)
  result, names = run_dir.load_result(workdir), client_names(workdir)
  owner = owner_of(settings, result, client, view, names)
  if private:
    check_private(workdir, owner)
  experiment = open_run.rebuild(settings, data, log, edit)
  return export_model(experiment, workdir, owner, path, log, private, to)


def check_output(output: AnyPath, suffix: str) -> Path:
  """Return the path; refuse another ending, an old file, no folder."""
  path = Path(output)
  causes = {
    'a folder, or the ending of another format': path.suffix != suffix,
    'it is there already, and nothing is overwritten': path.exists(),
    f'there is no folder {path.parent}': not path.parent.is_dir(),
  }
  for cause, is_so in causes.items():
    if is_so:
      expected = f'a new file *{suffix} in a folder that exists'
      raise bad_input('out', got=str(path), expected=expected, cause=cause)
  return path


def check_private(workdir: AnyPath, owner: Owner) -> None:
  """Refuse a model that no budget of the run, as it is stored, covers."""
  cause = budget_of(workdir).no_budget
  if owner.client is not None:
    cause = f'it is the model of {owner} which holds the data of a client'
  if cause:
    raise bad_input(
      'private',
      got=f'{owner} of {workdir}',
      expected='the model of the server after the last round of a run whose '
      'noise came from a secret that is erased, and of which a budget is known',
      choices=[f'--client={SERVER}', 'without --private: not for release'],
      cause=cause,
    )


def export_model(
  experiment: Experiment,
  workdir: AnyPath,
  owner: Owner,
  path: Path,
  log: open_run.Log,
  private: bool = False,
  to: str = 'npz',
) -> Path:
  """Write the model of its owner; return the path of the file.

  A private file has nothing that was counted without noise.
  """
  if to == 'onnx' and experiment.tests_by_batch:
    raise bad_input(
      'to',
      got='onnx, of a model that predicts with batch statistics',
      expected='answers that do not depend on their neighbours',
      choices=['npz', 'torch', 'a run with norm_statistics=running'],
    )
  steps = [] if to == 'npz' else layer_list(experiment)
  states = open_run.load_states(experiment, workdir, log)
  if private:
    model = global_model(experiment, states[0])
    about = private_header(experiment, Path(workdir), model)
  else:
    model, scores = model_of(experiment, states, owner)
    about = header(experiment, Path(workdir), owner, model, scores)
  if about['batch_statistics']:
    log(TOGETHER)
  with atomic_files.writing(path, 'out'):
    if to == 'npz':
      save_model(path, model, about)
    else:
      form = {'torch': torch_module, 'onnx': onnx_graph}[to]
      tensors = tensors_of(steps, model, about)
      contents = form.contents(steps, tensors, about, path.name)
      for suffix, content in zip(SUFFIXES[to], contents, strict=True):
        atomic_files.write_bytes(path.with_suffix(suffix), content)
  number = sum(leaf.size for leaf in jax.tree.leaves(model))
  kind = 'private model' if private else 'model'
  log(
    f'{path}: the {kind} of {owner} with {number:,} numbers{_quality(about)}.'
  )
  return path


def _quality(about: Mapping[str, Any]) -> str:
  """Return how good the model is, or what a private one has spent."""
  if budget := about.get('privacy'):
    start = ', with what its start has spent' * ('start' in budget)
    return (
      f', epsilon {budget["epsilon"]:.3g} at delta {budget["delta"]:g}{start}'
    )
  if not about['test_count']:
    return '; there are no test examples for it'
  correct, count = about['test_correct'], about['test_count']
  return f'; it is right on {correct} of {count} test examples'
