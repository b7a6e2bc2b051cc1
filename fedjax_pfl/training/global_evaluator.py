"""Evaluate the global model of a server on the whole test set.

The models of clients are evaluated on each client's own test examples; the
global model on all of the dataset, in stored order and in batches of
TEST_BATCH. A method whose server holds a part of the model only has none.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.algorithm import Server, Stage
from fedjax_pfl.core.types import ClientData, Scores
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import TEST_BATCH, score_view
from fedjax_pfl.evaluation.own_metrics import with_metrics
from fedjax_pfl.evaluation.summary import other_measures, own_measures
from fedjax_pfl.training.experiment import Experiment

GlobalEvaluator = Callable[[Stage, Server], dict[str, Any]]
NUM_LAST = 10


def make_global_evaluator(experiment: Experiment) -> GlobalEvaluator:
  """Return (stage, server) -> accuracy, top5, loss, ece, mce and count.

  It returns {} without `eval_global_model`, or where the stage has no model.
  """
  programs, tests = {}, []

  def evaluate(stage, server):
    algorithm = stage.algorithm
    if (
      not experiment.settings.evaluation.eval_global_model
      or not algorithm.global_model
    ):
      return {}
    if stage.name not in programs:
      normalise = experiment.task.normalise
      score_fn = with_metrics(score_view, experiment.metrics)
      programs[stage.name] = jax.jit(
        lambda server, test: score_fn(
          algorithm.predict,
          algorithm.global_model(server),
          test,
          normalise,
          TEST_BATCH,
        )
      )
    if not tests:  # uint8 images on the device, at the first evaluation
      tests.append(as_one_client(experiment.dataset.test))
    return percentages(programs[stage.name](server, tests[0]))

  return evaluate


def as_one_client(images: Images) -> ClientData:
  """Return all images as those of one client: index [N], count []."""
  size = len(images.y)
  return ClientData(
    jnp.asarray(images.x),
    jnp.asarray(images.y, jnp.int32),
    jnp.arange(size),
    jnp.asarray(size),
  )


def percentages(scores: Scores) -> dict[str, Any]:
  """Return the scores of one set of tests as result.json has them."""
  others = {
    name: float(value) for name, value in other_measures(scores).items()
  }
  others |= own_measures(scores, np.True_)
  count = int(scores.count)
  accuracy = 100 * int(scores.correct) / max(count, 1)
  return {'accuracy': accuracy, **others, 'count': count}


def last_evaluations(
  metrics: list[Mapping[str, Any]], stage: str
) -> dict[str, float | int]:
  """Return mean and deviation (ddof 0) of the last evaluations of a stage."""
  name = 'global/accuracy'
  last = [
    line[name] for line in metrics if line['stage'] == stage and name in line
  ][-NUM_LAST:]
  if not last:
    return {}
  values = np.array(last, float)
  return {
    'mean': float(values.mean()),
    'std': float(values.std()),
    'evaluations': len(last),
  }
