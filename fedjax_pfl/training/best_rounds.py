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
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import Array, Scores
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
  num_clients = experiment.settings.data.num_seen_clients
  clients = experiment.placement.to_host(clients, num_clients)
  ids = np.int32(number), np.int32(view)
  best = Chosen(*ids, means[view], server, clients)
  # Copies: rounds reuse the memory of states, on the device and on the host.
  return jax.tree.map(np.array, best), numbers


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
  test_best: dict[str, TestBest],
  done: int,
) -> tuple[dict[str, Scores], dict[str, TestBest]]:
  """Return the scores of these views, and the best rounds up to this one.

  Where clients keep models {view: [K, ...]}, of equal rounds that of the last.
  """
  stage, models = evaluator.experiment.stages[place], {}
  if stage.keep_best is None:
    scores = evaluator.clients(place, states, views)
  else:
    view, blocks = stage.keep_best.view, []

    def add(ids, models):
      blocks.append(jax.tree.map(np.asarray, models[view]))

    scores = evaluator.clients(place, states, views, on_models=add)
    num_clients = len(scores[view].count)  # the last block is filled up
    models[view] = jax.tree.map(
      lambda *rows: np.concatenate(rows)[:num_clients], *blocks
    )
  updated, trains = {}, np.asarray(evaluator.experiment.train.count) > 0
  for view, score in scores.items():
    (each, together), own = test_best[view], models.get(view, ())
    each = update_best(each, score, done, own, replace_ties=view in models)
    # Of the others none is in a summary.
    score = score._replace(correct=score.correct * trains)
    together = update_best(together, score, done, shared_round=True)
    updated[view] = TestBest(each, together)
  return scores, {**test_best, **jax.tree.map(np.asarray, updated)}


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


# ---- before the first round --------------------------------------------------


def begin_best(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> tuple[dict[str, TestBest], Chosen | tuple[()]]:
  """Return the best rounds of a stage on the tests, and the one chosen.

  Before any was evaluated; () where none is chosen. Of the states only the
  shapes matter; models and states take no memory.
  """
  evaluation = experiment.settings.evaluation
  num_clients = experiment.settings.data.num_seen_clients
  dtype = jnp.int32 if evaluation.scoring == 'exact' else float
  first = jax.tree.map(np.asarray, init_best(num_clients, dtype=dtype))
  best = {view: TestBest(first, first) for view in evaluation.eval_views}
  if stage.keep_best is not None:
    view = stage.keep_best.view
    shapes = view_shapes(stage.algorithm, server, clients, experiment.train)
    rows = jax.vmap(lambda one: one, axis_size=num_clients, in_axes=None)
    models = shapes_on_host(jax.eval_shape(rows, shapes[view]))
    best[view] = TestBest(first._replace(models=models), first)
  if not has_candidates(experiment, stage):
    return best, ()
  # On a mesh there are more rows, for an equal share of each device.
  clients = jax.eval_shape(
    lambda own: trees.gather(own, slice(num_clients)), clients
  )
  none = np.array(-1, np.int32), np.array(0, np.int32), np.array(-1.0)
  return best, Chosen(*none, *shapes_on_host((server, clients)))


def bytes_of_best(
  experiment: Experiment, stage: Stage, server: Server, clients: Client
) -> int:
  """Return the memory of what is kept, while a better one replaces it."""
  best, chosen = begin_best(experiment, stage, server, clients)
  models = [own.each.models for own in best.values()]
  states = chosen and (chosen.server, chosen.clients)
  models, states = trees.num_bytes(models), trees.num_bytes(states)
  return MODEL_COPIES * models + STATE_COPIES * states
