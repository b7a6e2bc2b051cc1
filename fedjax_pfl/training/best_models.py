"""The models of best rounds: chosen on validation, or kept by TEST accuracy.

Validation examples are those that nobody trains on. Candidates are the
evaluated rounds of the last stage, each in `Settings.candidate_views`. One is
chosen for all clients, so that it is one model that could be deployed:

  argmax over rounds t and views v of  mean over clients k of a_k(t, v)

where a_k is client k's accuracy on its validation examples, or what `tune_by`
names (argmin where lower is better); of equal ones the earliest round, and of
these the first view. Clients without such examples are in no mean. Clients
adapt on training data: no test reaches the choice.

In a stage with `keep_best` each client keeps the model of its best round by
TEST accuracy. The model with which the stage begins is one of them, and the
later of equal ones is kept. A run evaluates, when it ends, what `keep_best`
makes of those of its last stage.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around.aggregation import honest
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import PyTree, Scores
from fedjax_pfl.evaluation.choices import best_candidate, mean_of_clients
from fedjax_pfl.evaluation.evaluate import view_shapes
from fedjax_pfl.evaluation.own_metrics import chooser
from fedjax_pfl.evaluation.summary import values_by_name
from fedjax_pfl.federated.placement import shapes_on_host
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, States

COPIES = 2  # of the states, while a better round replaces another
COPIES_KEPT = 3  # of the models of clients, while better ones replace some
KEPT_VIEW = 'initial'  # that clients keep


class Kept(NamedTuple):
  """The best model so far of every client: numpy arrays."""

  correct: np.ndarray  # [K] right answers on its tests; of errors their minus
  models: PyTree  # [K, ...]


class Chosen(NamedTuple):
  """The best round so far on the validation examples: numpy arrays."""

  round: np.ndarray  # [] -1 before the first
  view: np.ndarray  # [] its number among the candidates
  accuracy: np.ndarray  # [] or what `tune_by` names: mean over clients
  server: Server
  clients: Client  # [K, ...]


Choice = Chosen | tuple[()]  # () where nothing is chosen


def nothing_yet(
  experiment: Experiment, stage: Stage, states: States
) -> tuple[Kept | tuple[()], Choice]:
  """Return what clients keep, and the choice, before any evaluation."""
  num_clients = experiment.settings.data.num_seen_clients
  kept, choice, (server, clients) = (), (), states
  if stage.keep_best:
    shapes = view_shapes(stage.algorithm, *states, experiment.train)[KEPT_VIEW]
    rows = jax.vmap(lambda model: model, axis_size=num_clients, in_axes=None)
    models = shapes_on_host(jax.eval_shape(rows, shapes))
    kept = Kept(np.full(num_clients, -np.inf), models)
  if has_candidates(experiment, stage):
    # On a mesh there are more rows, for an equal share of each device.
    all_of_them = lambda rows: trees.gather(rows, slice(num_clients))
    shapes = server, jax.eval_shape(all_of_them, clients)
    none = np.array(-1, np.int32), np.array(0, np.int32), np.array(-1.0)
    choice = Chosen(*none, *shapes_on_host(shapes))
  return kept, choice


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
  views = experiment.settings.candidate_views
  scores = evaluator.validation(stage_number, states, views)
  scores = {f'validation/{view}': scores[view] for view in views}
  count = honest(states[0], experiment.train.count)
  evaluation = experiment.settings.evaluation
  name, metrics = evaluation.tune_by, evaluation.metrics
  each = [
    mean_of_clients(values_by_name(score, count)[name])
    for score in scores.values()
  ]
  means = dict(zip(scores, each, strict=True))
  before = float(chosen.accuracy) if chosen.round >= 0 else math.nan
  sign = chooser(name, metrics, experiment.settings.data.loss).sign
  best = best_candidate([sign * mean for mean in (before, *each)])
  if best is None and chosen.round < 0:
    best = 1  # none is finite: the first, until one is
  if not best:  # an earlier round, or none
    return chosen, scores, means
  view = best - 1
  server, clients = states
  num_clients = experiment.settings.data.num_seen_clients
  clients = experiment.placement.to_host(clients, num_clients)
  server = experiment.placement.whole(server)
  best = Chosen(np.int32(number), np.int32(view), each[view], server, clients)
  # Copies: rounds reuse the memory of states, on the device and on the host.
  return jax.tree.map(np.array, best), scores, means


def chosen_states(experiment: Experiment, chosen: Chosen) -> States:
  """Return the states of the chosen round, where they belong."""
  server = jax.tree.map(jnp.asarray, chosen.server)
  return server, experiment.placement.from_host(chosen.clients)


# ---- on tests ----------------------------------------------------------------


def evaluate(
  evaluator: Evaluator,
  number: int,
  states: States,
  views: Sequence[str],
  kept: Kept | tuple[()],
) -> tuple[dict[str, Scores], Kept | tuple[()]]:
  """Return the scores of a stage in these views, and what clients keep."""
  if not kept:
    return evaluator.clients(number, states, views), kept
  blocks = []
  add = lambda _, models: blocks.append(
    jax.tree.map(np.asarray, models[KEPT_VIEW])
  )
  scores = evaluator.clients(number, states, views, on_models=add)
  correct = np.asarray(scores[KEPT_VIEW].correct, float)
  models = jax.tree.map(  # the last block is filled up
    lambda *rows: np.concatenate(rows)[: len(correct)], *blocks
  )
  merit = np.nan_to_num(
    correct * evaluator.experiment.measure.sign, nan=-np.inf
  )
  return scores, later_if_better(kept, Kept(merit, models))


def later_if_better(before: Kept, latest: Kept) -> Kept:
  """Return the better of two rounds, client by client."""
  wins = latest.correct >= before.correct  # [K]
  rows = lambda new: wins.reshape(-1, *[1] * (new.ndim - 1))
  choose = lambda old, new: np.where(rows(new), new, old)
  return jax.tree.map(choose, before, latest)


def evaluate_finished(
  evaluator: Evaluator, kept: Kept | tuple[()]
) -> dict[str, Scores]:
  """Return {view: scores [K]} of what the last stage makes of kept models."""
  if not kept:
    return {}
  experiment = evaluator.experiment
  finish_fn = experiment.stages[-1].keep_best
  # Placed once: else every block would copy them all.
  models = experiment.placement.from_host(finish_fn(kept.models))
  last = len(experiment.stages) - 1
  return evaluator.clients(last, ((), models), [KEPT_VIEW], edit=_stored_models)


def _stored_models(stage: Stage) -> Stage:
  """Return the stage in which the model of a client is its state."""
  show = lambda server, client, data, rng: {KEPT_VIEW: client}
  return stage._replace(algorithm=stage.algorithm._replace(personalize=show))
