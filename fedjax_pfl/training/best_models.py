"""The best models of a run: of the round chosen on validation, and of clients.

Validation examples are those that nobody trains on. Candidates are the
evaluated rounds of the last stage, each in the views of `candidate_views`. One
is chosen for all clients, so that it is one model that could be deployed:

  argmax over rounds t and views v of  mean over clients k of a_k(t, v)

where a_k is client k's accuracy on its validation examples; of equal ones the
earliest round, and of these the first view. Clients without such examples are
in no mean. Clients adapt on training data, and right answers are counted: no
test reaches the choice.

Where `Stage.keep_best` names a view, each client keeps its model of that view
from the round of its best TEST accuracy; of equal rounds that of the last.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import PyTree, Scores
from fedjax_pfl.evaluation.evaluate import view_shapes
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.federated.placement import shapes_on_host
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, States
from fedjax_pfl.training.views import candidate_views

# Of all states, while a better round replaces another; of all models that
# clients keep, while the better ones are chosen: so far, latest, and chosen.
STATE_COPIES, MODEL_COPIES = 2, 3


class Chosen(NamedTuple):
  """The best round so far on the validation examples: numpy arrays."""

  round: np.ndarray  # [] -1 before the first
  view: np.ndarray  # [] its place in `candidate_views`
  accuracy: np.ndarray  # [] mean over clients, in percent
  server: Server
  clients: Client  # [K, ...]


Choice = Chosen | tuple[()]  # () where nothing is chosen


def has_candidates(experiment: Experiment, stage: Stage) -> bool:
  """Return whether validation may choose a round of this stage."""
  return experiment.validation is not None and stage is experiment.stages[-1]


def choose(
  evaluator: Evaluator, chosen: Choice, place: int, states: States, number: int
) -> tuple[Choice, dict[str, Scores], dict[str, float]]:
  """Return the better of choice and round, its scores, and mean accuracies."""
  experiment = evaluator.experiment
  if not has_candidates(experiment, experiment.stages[place]):
    return chosen, {}, {}
  views = candidate_views(experiment.settings)
  found = evaluator.validation(place, states, views)
  scores = {f'validation/{view}': found[view] for view in views}
  count = experiment.train.count
  each = [float(np.nanmean(accuracies(own, count))) for own in scores.values()]
  means, view = dict(zip(scores, each, strict=True)), int(np.argmax(each))
  if not each[view] > chosen.accuracy:
    return chosen, scores, means
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


class Best(NamedTuple):
  """The best round so far of every client, and its model: numpy arrays."""

  round: np.ndarray  # [K] -1 before the first
  correct: np.ndarray  # [K] right answers in that round
  models: PyTree  # [K, ...]


# {view: {'each': Best}}; so earlier checkpoints have it.
Kept = dict[str, dict[str, Best]]


def evaluate_and_keep(
  evaluator: Evaluator,
  place: int,
  states: States,
  views: Sequence[str],
  kept: Kept,
  done: int,
) -> tuple[dict[str, Scores], Kept]:
  """Return the scores of these views, and what clients keep after them."""
  keep_best = evaluator.experiment.stages[place].keep_best
  if keep_best is None:
    return evaluator.clients(place, states, views), kept
  view, blocks = keep_best.view, []
  add = lambda _, models: blocks.append(jax.tree.map(np.asarray, models[view]))
  scores = evaluator.clients(place, states, views, on_models=add)
  correct = scores[view].correct
  models = jax.tree.map(  # the last block is filled up
    lambda *rows: np.concatenate(rows)[: len(correct)], *blocks
  )
  best = later_if_better(kept[view]['each'], correct, done, models)
  return scores, {view: {'each': best}}


def later_if_better(
  best: Best, correct: np.ndarray, number: int, models: PyTree
) -> Best:
  """Return the better of `best` and round `number`, client by client."""
  wins = correct >= best.correct  # [K]
  latest = Best(np.full_like(best.round, number), correct, models)
  rows = lambda new: wins.reshape(-1, *[1] * (new.ndim - 1))
  return jax.tree.map(lambda a, b: np.where(rows(a), a, b), latest, best)


def evaluate_finished(evaluator: Evaluator, kept: Kept) -> dict[str, Scores]:
  """Return {view: scores [K]} of kept models, finished by the last stage."""
  experiment = evaluator.experiment
  if experiment.stages[-1].keep_best is None:
    return {}
  view, finish_fn = experiment.stages[-1].keep_best
  # Placed once: else every block would copy them all.
  models = experiment.placement.from_host(finish_fn(kept[view]['each'].models))
  last = len(experiment.stages) - 1
  return evaluator.clients(last, ((), models), [view], edit=_stored_models)


def _stored_models(stage: Stage) -> Stage:
  """Return the stage in which the model of a client is its state."""
  view = stage.keep_best.view
  show = lambda server, client, data, rng: {view: client}
  return stage._replace(algorithm=stage.algorithm._replace(personalize=show))


def begin_best(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> tuple[Kept, Choice]:
  """Return what a stage keeps and chooses before any evaluation, by shapes."""
  num_clients, kept = experiment.settings.data.num_seen_clients, {}
  if stage.keep_best is not None:
    view = stage.keep_best.view
    shapes = view_shapes(stage.algorithm, server, clients, experiment.train)
    rows = jax.vmap(lambda one: one, axis_size=num_clients, in_axes=None)
    models = shapes_on_host(jax.eval_shape(rows, shapes[view]))
    before = np.full(num_clients, -1, np.int32)
    is_exact = experiment.settings.evaluation.scoring == 'exact'
    correct = before if is_exact else before.astype(jnp.zeros(()).dtype)
    kept[view] = {'each': Best(before, correct, models)}
  if not has_candidates(experiment, stage):
    return kept, ()
  # On a mesh there are more rows, for an equal share of each device.
  all_of_them = lambda own: trees.gather(own, slice(num_clients))
  clients = jax.eval_shape(all_of_them, clients)
  none = np.array(-1, np.int32), np.array(0, np.int32), np.array(-1.0)
  return kept, Chosen(*none, *shapes_on_host((server, clients)))


def bytes_of_best(experiment: Experiment, stage: Stage, states: States) -> int:
  """Return the memory of what is kept, while a better one replaces it."""
  kept, chosen = begin_best(experiment, stage, *states)
  models = trees.num_bytes([own['each'].models for own in kept.values()])
  states = trees.num_bytes(chosen and (chosen.server, chosen.clients))
  return MODEL_COPIES * models + STATE_COPIES * states
