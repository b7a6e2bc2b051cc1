"""Load the final states and the global model of a finished run."""

import os
import pathlib
from collections.abc import Callable

import jax

from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.runs import checkpoint
from fedjax_pfl.runs.model_file import load_model
from fedjax_pfl.training.best_rounds import chosen_states
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.state import state_shapes


def load_states(
  experiment: Experiment,
  workdir: str | os.PathLike,
  log: Callable[[str], None],
) -> tuple[Server, Client]:
  """Return server and clients as the run ends, from its last checkpoint.

  After the last round, or with select=validation after the chosen one. Only
  these two are read: other parts may differ between versions.
  """
  folder = pathlib.Path(workdir) / 'checkpoints'
  is_chosen = experiment.settings.evaluation.select == 'validation'

  def like(step):
    state = state_shapes(experiment, step)
    if is_chosen:
      return {'chosen': state.chosen}
    return {'server': state.server, 'clients': state.clients}

  restored = checkpoint.restore(folder, like, log, part=True)
  if restored is None or restored[0] < experiment.rounds:
    raise bad_input(
      'run',
      got=f'{workdir} with '
      + (f'round {restored[0]} saved' if restored else 'no checkpoint'),
      expected=f'the checkpoint after its last round, {experiment.rounds}',
      cause='a run that is not finished, or a copy without checkpoints/',
    )
  if is_chosen:
    return chosen_states(experiment, restored[1]['chosen'])
  return restored[1]['server'], restored[1]['clients']


def load_global(task: Task, workdir: str | os.PathLike) -> Params:
  """Return the global model of the run, model/global.npz."""
  path = pathlib.Path(workdir) / 'model' / 'global.npz'
  params, _ = load_model(path)
  if jax.tree.structure(params) != jax.tree.structure(task.is_head):
    raise bad_input(
      'model',
      got=f'{path} with the layers {", ".join(params)}',
      expected=f'the layers {", ".join(task.is_head)}',
      cause='the model of another run, or of another version',
    )
  return params
