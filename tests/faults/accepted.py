"""Mutated settings that were accepted really run: a round of a small model.

Most of what is changed stays as it is; what only makes a run longer is cut. An
error message is a good end here, too: a learning rate of a billion diverges.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from small_runs import TASK

from faults.mutations import draw_mutations, settings_of, try_one
from faults.outcome import Outcome
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training.build import Experiment, build_stages, placement_of
from fedjax_pfl.training.build_data import build_data
from fedjax_pfl.training.loop import train


def run(count: int, seed: int) -> Outcome:
  """Train so many accepted mutations for a round, or until a sentence."""
  failures = []
  for mutation, settings in _accepted(count, seed + 2):
    try:
      _train(settings)
    except BadInput:
      pass
    except Exception as error:
      failures.append(f'{mutation}: {type(error).__name__}: {error}'[:400])
  well = count - len(failures)
  return Outcome('accepted settings, trained', count, well, tuple(failures))


def _accepted(count: int, seed: int) -> Iterator[tuple[Any, dict[str, Any]]]:
  """Yield accepted mutations of configs for the digits, made short."""
  found = 0
  for mutation in draw_mutations(100 * count, seed):
    if found == count:
      return
    if not mutation.config.startswith('digits:'):
      continue
    trial = try_one(mutation)
    if not trial.is_accepted or trial.value.settings.data.dataset != 'digits':
      continue
    found += 1
    yield mutation, _shorter(settings_of(mutation))


def _shorter(settings: dict[str, Any]) -> dict[str, Any]:
  finetune = settings['finetune']
  epochs = tuple(min(epoch, 2) for epoch in finetune['epochs'])
  return {
    **settings,
    'rounds': 1,
    'local_epochs': 1,
    'eval_every': 1,
    'debug': False,  # clients in a Python loop take minutes
    'finetune': {**finetune, 'epochs': epochs},
  }


def _train(config: dict[str, Any]) -> None:
  settings = parse_config(config)
  experiment = Experiment(
    settings,
    *build_data(settings, lambda text: None),
    TASK,
    build_stages(settings, TASK),
    cohort_size(settings.data.num_clients, settings.training.client_fraction),
    placement_of(settings.system),
  )
  with tempfile.TemporaryDirectory() as folder:
    train(experiment, str(Path(folder) / 'run'))
