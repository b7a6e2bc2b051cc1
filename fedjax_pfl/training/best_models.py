"""The round of a run that is chosen on validation.

Validation examples are those that nobody trains on. Candidates are the
evaluated rounds of the last stage, each in the views of `candidate_views`. One
is chosen for all clients, so that it is one model that could be deployed:

  argmax over rounds t and views v of  mean over clients k of a_k(t, v)

where a_k is client k's accuracy on its validation examples; of equal ones the
earliest round, and of these the first view. Clients without such examples are
in no mean. Clients adapt on training data, and right answers are counted: no
test reaches the choice.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import Scores
from fedjax_pfl.evaluation.choices import best_candidate, mean_of_clients
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.federated.placement import shapes_on_host
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, States
from fedjax_pfl.training.views import candidate_views

COPIES = 2  # of the states, while a better round replaces another


class Chosen(NamedTuple):
  """The best round so far on the validation examples: numpy arrays."""

  round: np.ndarray  # [] -1 before the first
  view: np.ndarray  # [] its number in `candidate_views`
  accuracy: np.ndarray  # [] mean over clients, in percent
  server: Server
  clients: Client  # [K, ...]


Choice = Chosen | tuple[()]  # () where nothing is chosen


def has_candidates(experiment: Experiment, stage: Stage) -> bool:
  """Return whether validation may choose a round of this stage."""
  is_last = stage is experiment.stages[-1]
  return is_last and 'validation' in experiment.data.splits


def choose(
  evaluator: Evaluator,
  chosen: Choice,
  stage_number: int,
  states: States,
  number: int,
) -> tuple[Choice, dict[str, Scores], dict[str, float]]:
  """Return the better of choice and round, its scores, and mean accuracies."""
  experiment = evaluator.experiment
  if not has_candidates(experiment, experiment.stages[stage_number]):
    return chosen, {}, {}
  views = candidate_views(experiment.settings)
  scores = evaluator.validation(stage_number, states, views)
  scores = {f'validation/{view}': scores[view] for view in views}
  count = experiment.train.count
  each = [
    mean_of_clients(accuracies(score, count)) for score in scores.values()
  ]
  means = dict(zip(scores, each, strict=True))
  best = best_candidate([float(chosen.accuracy), *each])
  if best == 0:  # an earlier round
    return chosen, scores, means
  view = best - 1
  server, clients = states
  num_clients = experiment.settings.data.num_seen_clients
  clients = experiment.placement.to_host(clients, num_clients)
  about = np.int32(number), np.int32(view), each[view]
  best = Chosen(*about, server, clients)
  # Copies: rounds reuse the memory of states, on the device and on the host.
  return jax.tree.map(np.array, best), scores, means


def chosen_states(experiment: Experiment, chosen: Chosen) -> States:
  """Return the states of the chosen round, where they belong."""
  server = jax.tree.map(jnp.asarray, chosen.server)
  return server, experiment.placement.from_host(chosen.clients)


def nothing_yet(experiment: Experiment, stage: Stage, states: States) -> Choice:
  """Return the choice before any evaluation, by shapes."""
  if not has_candidates(experiment, stage):
    return ()
  # On a mesh there are more rows, for an equal share of each device.
  num_clients = experiment.settings.data.num_seen_clients
  all_of_them = lambda rows: trees.gather(rows, slice(num_clients))
  server, clients = states
  shapes = server, jax.eval_shape(all_of_them, clients)
  none = np.array(-1, np.int32), np.array(0, np.int32), np.array(-1.0)
  return Chosen(*none, *shapes_on_host(shapes))
