"""Mutated settings that were accepted really run: a round of a small model.

Most of what is changed stays as it is; what only makes a run longer is cut. An
error message is a good end here, too: a learning rate of a billion diverges.
"""

import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from small_runs import make_experiment

from faults.mutations import Mutation, mutations, settings_of, try_one
from faults.outcome import Outcome, draw_many, outcome_of
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.training.loop import train


def run(count: int, seed: int) -> Outcome:
  """Train so many accepted mutations for a round, or until a sentence."""
  drawn = draw_many(mutations(), 100 * count, seed + 2)
  ends = [_end_of(mutation) for mutation in islice(_accepted(drawn), count)]
  return outcome_of('accepted settings, trained', ends)


def _accepted(drawn: list[Mutation]) -> Iterator[Mutation]:
  """Yield the accepted mutations of configs for the digits."""
  for mutation in drawn:
    if mutation.config.startswith('digits:'):
      trial = try_one(mutation)
      if trial.is_accepted and trial.value.settings.data.dataset == 'digits':
        yield mutation


def _end_of(mutation: Mutation) -> str:
  try:
    with tempfile.TemporaryDirectory() as folder:
      experiment = make_experiment(**_shorter(settings_of(mutation)))
      train(experiment, str(Path(folder) / 'run'))
  except BadInput:
    pass
  except Exception as error:
    return f'{mutation}: {type(error).__name__}: {error}'[:400]
  return ''


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
