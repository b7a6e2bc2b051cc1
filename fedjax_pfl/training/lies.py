"""What attackers did to honest clients, and whether the server saw them.

Honest clients alone are in all numbers. `left_out` is of all rounds so far
(around/aggregation.py): precision is the part of attackers among the clients
left out, recall that of clients left out among attackers.
"""

from typing import Any

import numpy as np

from fedjax_pfl.around import bad_pfl
from fedjax_pfl.around.aggregation import FIELD
from fedjax_pfl.around.attacks import BACKDOORS, BAD_PFL, opened
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, States


def left_out(server: Any) -> dict[str, float]:
  """Return whom a robust server left out; {} without such a server."""
  state = getattr(server, FIELD, None)
  if state is None or not np.any(state.sent):
    return {}
  is_bad, sent, out = map(np.asarray, state)
  shares = {'share': (out, sent)}
  if is_bad.any():
    bad = out[is_bad]
    shares |= {'precision': (bad, out), 'recall': (bad, sent[is_bad])}
  return {
    f'left_out/{name}': float(part.sum() / whole.sum())
    if any(whole)
    else np.nan
    for name, (part, whole) in shares.items()
  }


def attackers(server: Any) -> list[int]:
  """Return the ids of those who attack."""
  state = getattr(server, FIELD, None)
  return [] if state is None else np.flatnonzero(state.is_bad).tolist()


def counted(experiment: Experiment, server: Any) -> np.ndarray:
  """Return the training examples [K]; 0 of attackers, who are in no mean."""
  count = np.array(experiment.train.count)
  count[attackers(server)] = 0
  return count


def told(server: Any) -> dict[str, Any]:
  """Return what result.json says of lies; {} without an attack and a rule."""
  numbers = {'attackers': attackers(server), 'left_out': left_out(server)}
  return {name: known for name, known in numbers.items() if known}


def with_success(
  experiment: Experiment,
  evaluator: Evaluator,
  states: States,
  scores: dict[str, Scores],
) -> dict[str, Scores]:
  """Return the scores of all views, with the success of a backdoor if any."""
  attack, last = experiment.settings.attack, len(experiment.stages) - 1
  if attack.name not in BACKDOORS:
    return scores
  made, (train, test) = None, experiment.eval_data
  if attack.name == BAD_PFL:
    of_server = experiment.stages[last].algorithm, states[0], experiment.train
    attack = attack._replace(task=experiment.task)
    made = bad_pfl.trigger(*of_server, np.array(attackers(states[0])), attack)
  data = train, opened(test, attack, made)
  label = 'evaluation of the backdoor'
  success = evaluator.clients(last, states, tuple(scores), data, label=label)
  return {
    view: score._replace(
      own={**(score.own or {}), 'backdoor': accuracies(success[view])}
    )
    for view, score in scores.items()
  }
