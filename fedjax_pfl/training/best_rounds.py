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

from fedjax_pfl.core.algorithm import Client, Server, Stage, View
from fedjax_pfl.core.types import Array, PyTree, Scores
from fedjax_pfl.evaluation import test_selection
from fedjax_pfl.evaluation.evaluate import view_shapes
from fedjax_pfl.evaluation.summary import accuracies, summarise
from fedjax_pfl.federated.placement import ONE_DEVICE, OneDevice
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

  num_clients = experiment.settings.data.num_seen_clients

  def nothing(leaf):
    return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)

  def rows(leaf):  # on a mesh there are more, for an equal share of each device
    zero = np.zeros((), leaf.dtype)
    return np.broadcast_to(zero, (num_clients, *leaf.shape[1:]))

  return Chosen(
    np.array(-1, np.int32),
    np.array(0, np.int32),
    np.array(-1.0),
    jax.tree.map(nothing, server),
    jax.tree.map(rows, clients),
  )


def choose(
  chosen: Chosen,
  accuracy: Mapping[str, float],
  number: int,
  server: Server,
  clients: Client,
  placement: OneDevice = ONE_DEVICE,
) -> Chosen:
  """Return the better of the choice so far and round `number`.

  `accuracy` is that of each candidate view, in their order.
  """
  means = list(accuracy.values())
  view = int(np.argmax(means))
  if not means[view] > chosen.accuracy:
    return chosen
  if rows := jax.tree.leaves(chosen.clients):
    clients = placement.to_host(clients, len(rows[0]))
  # Copies: rounds reuse the memory of states, on the device and on the host.
  copies = jax.tree.map(np.array, (server, clients))
  return Chosen(
    np.array(number, np.int32),
    np.array(view, np.int32),
    np.array(means[view]),
    *copies,
  )


def mean_accuracies(
  scores: Mapping[str, Scores], train_count: Array
) -> dict[str, float]:
  """Return {view: mean over the clients that have validation examples}."""
  return {
    view: float(np.nanmean(accuracies(score, train_count)))
    for view, score in scores.items()
  }


def chosen_states(
  experiment: Experiment, chosen: Chosen
) -> tuple[Server, Client]:
  """Return the states of the chosen round, where they belong."""
  server = jax.tree.map(jnp.asarray, chosen.server)
  return server, experiment.placement.from_host(chosen.clients)


def describe(experiment: Experiment, chosen: Chosen) -> dict[str, Any]:
  """Return what was chosen, for result.json."""
  return {
    'round': int(chosen.round),
    'view': candidate_views(experiment.settings)[int(chosen.view)],
    'validation_accuracy': float(chosen.accuracy),
  }


# ---- chosen on the tests -----------------------------------------------------


class TestBest(NamedTuple):
  """The best rounds of one view on the test set: see test_selection.py."""

  # A best round for every client; with its model if the stage asks for it.
  each: test_selection.Best
  # The round with the best pooled accuracy, for all.
  together: test_selection.Best


def best_model_shapes(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> dict[str, PyTree]:
  """Return {view: models [K, ...] without memory} of what the stage keeps."""
  if stage.keep_best is None:
    return {}
  view = stage.keep_best.view
  shapes = view_shapes(stage.algorithm, server, clients, experiment.train)
  num_clients = experiment.settings.data.num_seen_clients

  def stacked(leaf):
    return np.broadcast_to(np.zeros((), leaf.dtype), (num_clients, *leaf.shape))

  return {view: jax.tree.map(stacked, shapes[view])}


def init_test_best(
  experiment: Experiment, models: Mapping[str, PyTree] = {}
) -> dict[str, TestBest]:
  """Return the best rounds before any was evaluated.

  `models` are those that clients keep, by view; only their shapes matter.
  """
  settings = experiment.settings
  dtype = jnp.int32 if settings.evaluation.scoring == 'exact' else float
  first = test_selection.init_best(settings.data.num_seen_clients, dtype=dtype)
  best = jax.tree.map(np.asarray, first)
  views = settings.evaluation.eval_views
  return {
    view: TestBest(best._replace(models=models.get(view, ())), best)
    for view in views
  }


def update_test_best(
  test_best: dict[str, TestBest],
  scores: dict[str, Scores],
  done: int,
  models: Mapping[str, PyTree] = {},
) -> dict[str, TestBest]:
  """Return the best rounds after the evaluation of round `done`.

  `models` {view: [K, ...]} are those of this round, where clients keep them;
  of equal ones they keep the last.
  """
  updated = {
    view: TestBest(
      test_selection.update_best(
        test_best[view].each,
        score,
        done,
        models.get(view, ()),
        replace_ties=view in models,
      ),
      test_selection.update_best(
        test_best[view].together, score, done, shared_round=True
      ),
    )
    for view, score in scores.items()
  }
  return {**test_best, **jax.tree.map(np.asarray, updated)}


def summarise_best(
  test_best: dict[str, TestBest],
  test_count: Array,
  train_count: Array,
  finished: Mapping[str, Scores] = {},
) -> dict[str, dict[str, Any]]:
  """Return {view: {'each': summary, 'together': summary and its round}}.

  And 'finished': summary, of views whose best models were evaluated once more.
  """

  def summary(best):
    scores = Scores(best.correct, np.asarray(test_count))
    return summarise(scores, train_count)

  again = {
    view: {'finished': summarise(scores, train_count)}
    for view, scores in finished.items()
  }

  return {
    view: {
      'each': summary(best.each),
      'together': {
        'round': int(best.together.round[0]),
        **summary(best.together),
      },
      **again.get(view, {}),
    }
    for view, best in test_best.items()
    if best.together.round[0] >= 0
  }


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

  scores = evaluator.clients(place, states, views, add)
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
