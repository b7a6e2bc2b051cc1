"""The models of best rounds that clients keep, where a stage asks for them.

`Stage.keep_best` names the view. Its models of all clients are on the host and
in every checkpoint.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.algorithm import Stage, View
from fedjax_pfl.core.types import Scores
from fedjax_pfl.federated.cohort import is_on_host
from fedjax_pfl.training.evaluators import Evaluator
from fedjax_pfl.training.experiment import Experiment
from fedjax_pfl.training.state import State, TestBest

# Of all models, while the better ones are chosen: so far, latest, and chosen.
COPIES = 3


def evaluate_and_keep(
  evaluator: Evaluator, stage: Stage, state: State, views: list[str]
) -> tuple[dict[str, Scores], dict[str, View]]:
  """Return the scores of these views, and {view: models [K, ...]} to keep."""
  if stage.keep_best is None:
    return evaluator(stage, state, views), {}
  view, blocks = stage.keep_best.view, []

  def add(ids, models):
    blocks.append(jax.tree.map(np.asarray, models[view]))

  scores = evaluator(stage, state, views, add)
  num_clients = len(scores[view].count)  # the last block is filled up
  models = jax.tree.map(
    lambda *rows: np.concatenate(rows)[:num_clients], *blocks
  )
  return scores, {view: models}


def evaluate_finished(
  experiment: Experiment,
  evaluator: Evaluator,
  stage: Stage,
  test_best: Mapping[str, TestBest],
) -> dict[str, Scores]:
  """Return {view: scores [K]} of the best models as the stage finishes them.

  {} where its clients keep none.
  """
  if stage.keep_best is None:
    return {}
  view, finish_fn = stage.keep_best
  models = finish_fn(test_best[view].each.models)
  if not is_on_host(experiment.train):  # else every block would copy them all
    models = jax.tree.map(jnp.asarray, models)
  algorithm = stage.algorithm._replace(
    personalize=lambda server, client, data, rng: {view: client}
  )
  stored = Stage(f'{stage.name}, best {view}', 0, algorithm)
  return evaluator(stored, State((), models, np.zeros(()), {}), [view])
