"""The models that clients keep of their best rounds by TEST accuracy.

Of a stage with `keep_best`. The model with which the stage begins is one of
them, and the later of equal ones is kept. A run evaluates, when it ends, what
`keep_best` makes of those of its last stage.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import PyTree, Scores
from fedjax_pfl.evaluation.evaluate import view_shapes
from fedjax_pfl.federated.placement import shapes_on_host
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, States

VIEW = 'initial'  # that clients keep
COPIES = 3  # of the models, while better ones replace some


class Kept(NamedTuple):
  """The best model so far of every client: numpy arrays."""

  correct: np.ndarray  # [K] right answers on its tests; -1 before the first
  models: PyTree  # [K, ...]


def nothing_yet(
  experiment: Experiment, stage: Stage, states: States
) -> Kept | tuple[()]:
  """Return what clients keep before any evaluation, by shapes; () of none."""
  if stage.keep_best is None:
    return ()
  num_clients = experiment.settings.data.num_seen_clients
  shapes = view_shapes(stage.algorithm, *states, experiment.train)[VIEW]
  rows = jax.vmap(lambda model: model, axis_size=num_clients, in_axes=None)
  models = shapes_on_host(jax.eval_shape(rows, shapes))
  return Kept(np.full(num_clients, -1.0), models)


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
  add = lambda _, models: blocks.append(jax.tree.map(np.asarray, models[VIEW]))
  scores = evaluator.clients(number, states, views, on_models=add)
  correct = np.asarray(scores[VIEW].correct, float)
  models = jax.tree.map(  # the last block is filled up
    lambda *rows: np.concatenate(rows)[: len(correct)], *blocks
  )
  return scores, later_if_better(kept, Kept(correct, models))


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
  return evaluator.clients(last, ((), models), [VIEW], edit=_stored_models)


def _stored_models(stage: Stage) -> Stage:
  """Return the stage in which the model of a client is its state."""
  show = lambda server, client, data, rng: {VIEW: client}
  return stage._replace(algorithm=stage.algorithm._replace(personalize=show))
