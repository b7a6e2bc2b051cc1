"""The best rounds of a run: chosen on validation, and by test accuracy.

Validation examples are those that nobody trains on. Candidates are the
evaluated rounds of the last stage, each in the views of `candidate_views`. One
is chosen for all clients, so that it is one model that could be deployed:

  argmax over rounds t and views v of  mean over clients k of a_k(t, v)

where a_k is client k's accuracy on its validation examples; of equal ones the
earliest round, and of these the first view. Clients without such examples are
in no mean. Clients adapt on their training data, and right answers are counted,
whatever `adapt_on` and `scoring` say of the tests: no test reaches the choice.

Test selection (evaluation/test_selection.py) stands apart from it. Where
`Stage.keep_best` names a view, its models of all clients are on the host and in
every checkpoint.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Client, Server, Stage, View
from fedjax_pfl.core.types import Array, PyTree, Scores
from fedjax_pfl.evaluation.evaluate import view_shapes
from fedjax_pfl.evaluation.summary import accuracies, summarise
from fedjax_pfl.evaluation.test_selection import Best, init_best, update_best
from fedjax_pfl.federated.placement import shapes_on_host
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.evaluators import Evaluator
from fedjax_pfl.training.views import candidate_views

# Of all states, while a better round replaces another; of all models that
# clients keep, while the better ones are chosen: so far, latest, and chosen.
STATE_COPIES, MODEL_COPIES = 2, 3


# ---- chosen on validation ----------------------------------------------------


class Chosen(NamedTuple):
  """The best round so far on the validation examples: numpy arrays."""

  round: np.ndarray  # [] -1 before the first
  view: np.ndarray  # [] its place in `candidate_views`
  accuracy: np.ndarray  # [] mean over clients, in percent
  server: Server
  clients: Client  # [K, ...]


def has_candidates(experiment: Experiment, stage: Stage) -> bool:
  """Return whether validation may choose a round of this stage."""
  return experiment.validation is not None and stage is experiment.stages[-1]


def init_chosen(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> Chosen | tuple[()]:
  """Return the choice before the first round; () where there is none.

  Of the states only the shapes matter; the result takes no memory.
  """
  if not has_candidates(experiment, stage):
    return ()
  # On a mesh there are more rows, for an equal share of each device.
  rows = slice(experiment.settings.data.num_seen_clients)
  clients = jax.eval_shape(lambda own: trees.gather(own, rows), clients)
  return _chosen(-1, 0, -1.0, *shapes_on_host((server, clients)))


def choose(
  evaluator: Evaluator,
  chosen: Chosen | tuple[()],
  place: int,
  states: tuple[Server, Client],
  number: int,
) -> tuple[Chosen | tuple[()], dict[str, float]]:
  """Return the better of the choice so far and round `number`.

  And the mean accuracies of its candidate views, as metrics have them.
  """
  experiment = evaluator.experiment
  if not has_candidates(experiment, experiment.stages[place]):
    return chosen, {}
  views = candidate_views(experiment.settings)
  scores = evaluator.validation(place, states, views)
  count = experiment.train.count
  means = [float(np.nanmean(accuracies(scores[v], count))) for v in views]
  numbers = {
    f'validation/{view}': mean for view, mean in zip(views, means, strict=True)
  }
  view = int(np.argmax(means))
  if not means[view] > chosen.accuracy:
    return chosen, numbers
  server, clients = states
  if jax.tree.leaves(clients):
    num_clients = experiment.settings.data.num_seen_clients
    clients = experiment.placement.to_host(clients, num_clients)
  # Copies: rounds reuse the memory of states, on the device and on the host.
  copies = jax.tree.map(np.array, (server, clients))
  return _chosen(number, view, means[view], *copies), numbers


def _chosen(
  number: int, view: int, accuracy: float, server: Server, clients: Client
) -> Chosen:
  ids = np.array(number, np.int32), np.array(view, np.int32)
  return Chosen(*ids, np.array(accuracy), server, clients)


def chosen_states(
  experiment: Experiment, chosen: Chosen
) -> tuple[Server, Client]:
  """Return the states of the chosen round, where they belong."""
  server = jax.tree.map(jnp.asarray, chosen.server)
  return server, experiment.placement.from_host(chosen.clients)


# ---- chosen on the tests -----------------------------------------------------


class TestBest(NamedTuple):
  """The best rounds of one view on the test set: see test_selection.py."""

  # A best round for every client; with its model if the stage asks for it.
  each: Best
  # The round with the best pooled accuracy, for all.
  together: Best


def kept_models(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> dict[str, PyTree]:
  """Return {view: models [K, ...] without memory} of what the stage keeps."""
  if stage.keep_best is None:
    return {}
  view = stage.keep_best.view
  shapes = view_shapes(stage.algorithm, server, clients, experiment.train)
  num_clients = experiment.settings.data.num_seen_clients
  models = jax.eval_shape(
    jax.vmap(lambda one: one, axis_size=num_clients, in_axes=None), shapes[view]
  )
  return {view: shapes_on_host(models)}


def init_test_best(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> dict[str, TestBest]:
  """Return the best rounds of a stage before any was evaluated."""
  evaluation = experiment.settings.evaluation
  dtype = jnp.int32 if evaluation.scoring == 'exact' else float
  num_clients = experiment.settings.data.num_seen_clients
  first = jax.tree.map(np.asarray, init_best(num_clients, dtype=dtype))
  models = kept_models(experiment, stage, server, clients)
  return {
    view: TestBest(first._replace(models=models.get(view, ())), first)
    for view in evaluation.eval_views
  }


def update_test_best(
  test_best: dict[str, TestBest],
  scores: dict[str, Scores],
  done: int,
  models: Mapping[str, PyTree],
) -> dict[str, TestBest]:
  """Return the best rounds after the evaluation of round `done`.

  `models` {view: [K, ...]} are those of this round, where clients keep them;
  of equal ones they keep the last.
  """
  updated = {
    view: TestBest(
      update_best(
        test_best[view].each,
        score,
        done,
        models.get(view, ()),
        replace_ties=view in models,
      ),
      update_best(test_best[view].together, score, done, shared_round=True),
    )
    for view, score in scores.items()
  }
  return {**test_best, **jax.tree.map(np.asarray, updated)}


def summarise_best(
  test_best: dict[str, TestBest],
  test_count: Array,
  train_count: Array,
  finished: Mapping[str, Scores],
) -> dict[str, dict[str, Any]]:
  """Return {view: {'each': summary, 'together': summary and its round}}.

  And 'finished': summary, of views whose best models were evaluated once more.
  """

  summaries = {}
  for view, best in test_best.items():
    number = int(best.together.round[0])
    if number >= 0:
      each, together = (
        summarise(Scores(own.correct, np.asarray(test_count)), train_count)
        for own in best
      )
      together = {'round': number, **together}
      summaries[view] = {'each': each, 'together': together}
    if view in finished:
      again = summarise(finished[view], train_count)
      summaries.setdefault(view, {})['finished'] = again
  return summaries


def evaluate_and_keep(
  evaluator: Evaluator,
  place: int,
  states: tuple[Server, Client],
  views: Sequence[str],
) -> tuple[dict[str, Scores], dict[str, View]]:
  """Return the scores of these views, and {view: models [K, ...]} to keep."""
  stage = evaluator.experiment.stages[place]
  if stage.keep_best is None:
    return evaluator.clients(place, states, views), {}
  view, blocks = stage.keep_best.view, []

  def add(ids, models):
    blocks.append(jax.tree.map(np.asarray, models[view]))

  scores = evaluator.clients(place, states, views, on_models=add)
  num_clients = len(scores[view].count)  # the last block is filled up
  models = jax.tree.map(
    lambda *rows: np.concatenate(rows)[:num_clients], *blocks
  )
  return scores, {view: models}


def evaluate_finished(
  evaluator: Evaluator, test_best: Mapping[str, TestBest]
) -> dict[str, Scores]:
  """Return {view: scores [K]} of the best models, finished by the last stage.

  {} where its clients keep none.
  """
  experiment = evaluator.experiment
  if experiment.stages[-1].keep_best is None:
    return {}
  view, finish_fn = experiment.stages[-1].keep_best
  # Placed once: else every block would copy them all.
  models = experiment.placement.from_host(
    finish_fn(test_best[view].each.models)
  )
  last = len(experiment.stages) - 1
  return evaluator.clients(last, ((), models), [view], edit=_stored_models)


def _stored_models(stage: Stage) -> Stage:
  """Return the stage in which the model of a client is its state."""
  view = stage.keep_best.view
  algorithm = stage.algorithm._replace(
    personalize=lambda server, client, data, rng: {view: client}
  )
  return stage._replace(algorithm=algorithm)
