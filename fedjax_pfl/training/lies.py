"""What attackers did to honest clients, and whether the server saw them.

Honest clients alone are in these numbers. `left_out` is of all rounds so far
(around/aggregation.py): precision is the part of attackers among the clients
left out, recall that of clients left out among attackers.
"""

from typing import Any

import numpy as np

from fedjax_pfl.around import bad_pfl
from fedjax_pfl.around.aggregation import FIELD
from fedjax_pfl.around.attacks import BACKDOORS, BAD_PFL, opened
from fedjax_pfl.core import trees
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.summary import summarise
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


def of_honest(
  scores: dict[str, Scores], count: Any, attackers: list[int], sign: int
) -> dict[str, dict[str, Any]]:
  """Return the summaries of honest clients, by view."""
  honest = np.setdiff1d(np.arange(len(count)), attackers)
  return {
    view: summarise(
      trees.gather(score, honest), np.asarray(count)[honest], sign
    )
    for view, score in scores.items()
  }


def summary(
  experiment: Experiment,
  evaluator: Evaluator,
  states: States,
  scores: dict[str, Scores],
) -> dict[str, Any]:
  """Return what result.json says of lies; {} without an attack and a rule."""
  attack, out = experiment.settings.attack, left_out(states[0])
  numbers = {'left_out': out} if out else {}
  if not attack:
    return numbers
  attackers = np.flatnonzero(getattr(states[0], FIELD).is_bad).tolist()
  train, test = experiment.eval_data
  rest = experiment.train.count, attackers, experiment.measure.sign
  numbers |= {'attackers': attackers, 'honest': of_honest(scores, *rest)}
  if attack.name in BACKDOORS:
    last, made = len(experiment.stages) - 1, None
    if attack.name == BAD_PFL:
      of_server = experiment.stages[last].algorithm, states[0], experiment.train
      attack = attack._replace(task=experiment.task)
      made = bad_pfl.trigger(*of_server, np.array(attackers), attack)
    data = train, opened(test, attack, made)
    label = 'evaluation of the backdoor'
    success = evaluator.clients(last, states, tuple(scores), data, label=label)
    numbers['backdoor'] = of_honest(success, *rest)
  return numbers
