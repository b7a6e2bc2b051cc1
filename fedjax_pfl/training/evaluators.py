"""How a run evaluates the models of its clients, and the server's own.

The models of clients are evaluated on each client's own test examples; the
global model on the whole test set, in stored order and in batches of
TEST_BATCH. A method whose server holds a part of the model only has none.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Server, Stage
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import Array, ClientData, Key, Scores
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.evaluate import (
  Evaluate,
  evaluate_clients,
  make_evaluate,
)
from fedjax_pfl.evaluation.metrics import SCORINGS, TEST_BATCH, score_view
from fedjax_pfl.evaluation.new_clients import with_new_clients
from fedjax_pfl.evaluation.own_metrics import with_metrics
from fedjax_pfl.evaluation.summary import (
  other_measures,
  own_measures,
  summarise,
)
from fedjax_pfl.federated.chunking import evaluation_chunk
from fedjax_pfl.federated.sharding import replicate
from fedjax_pfl.training.build import Experiment, mesh_of

CPU_BLOCK = 10  # clients evaluated between two updates of the progress bar
NUM_LAST = 10  # evaluations of the global model, of which a mean is stored

Evaluator = Callable[..., dict[str, Scores]]
GlobalEvaluator = Callable[[Stage, Server], dict[str, Any]]


class Evaluators(NamedTuple):
  """The evaluations of a run."""

  clients: Evaluator  # (stage, *states, views, on_models): {view: [K]}
  global_model: GlobalEvaluator  # (stage, server): numbers; {} without a model
  validation: Evaluator | None  # as `clients`, on examples kept for choosing
  unseen: Evaluator | None  # as `clients`, of those who come after training


def make_evaluators(
  experiments: Sequence[Experiment], keys: Sequence[Key]
) -> list[Evaluators]:
  """Return the evaluators of each seed; they share their compiled programs."""
  # The test set is that of all seeds.
  global_evaluator = make_global_evaluator(experiments[0])
  compiled, for_choosing, of_unseen = {}, {}, {}
  return [
    Evaluators(
      make_evaluator(experiment, key, compiled),
      global_evaluator,
      make_validation_evaluator(experiment, key, for_choosing),
      make_unseen_evaluator(experiment, key, of_unseen),
    )
    for experiment, key in zip(experiments, keys, strict=True)
  ]


def make_evaluator(
  experiment: Experiment,
  key: Key,
  compiled: dict[tuple, Evaluate] | None = None,
) -> Evaluator:
  """Return (stage, server, clients, views, on_models) -> {view: Scores [K]}.

  `compiled` is the cache of programs that several seeds share.
  """
  scoring = experiment.settings.evaluation.scoring
  return _make_evaluator(
    experiment, key, compiled, *experiment.eval_data, scoring
  )


def make_validation_evaluator(
  experiment: Experiment,
  key: Key,
  compiled: dict[tuple, Evaluate] | None = None,
) -> Evaluator | None:
  """Return the same on the validation examples; None without any.

  Clients adapt on their training data, with the random numbers of the
  evaluation on the tests: the models are the same.
  """
  if experiment.validation is None:
    return None
  return _make_evaluator(
    *(experiment, key, compiled, experiment.train),
    *(experiment.validation, 'exact', 'validation'),
  )


def make_unseen_evaluator(
  experiment: Experiment,
  key: Key,
  compiled: dict[tuple, Evaluate] | None = None,
) -> Evaluator | None:
  """Return the same for the clients who come after training; None without any.

  Their states are made from that of the server: see new_clients.py. The key of
  evaluation is fold_in(key, K), K the clients that took part.
  """
  if experiment.unseen is None:
    return None
  num_seen = experiment.settings.data.num_seen_clients
  evaluate_fn = _make_evaluator(
    *(experiment, jax.random.fold_in(key, num_seen), compiled),
    *experiment.unseen_eval_data,
    experiment.settings.evaluation.scoring,
    'evaluation of unseen clients',
  )

  def evaluate(stage, server, clients, views):
    del clients
    return evaluate_fn(with_new_clients(stage), server, (), views)

  return evaluate


def _make_evaluator(
  experiment: Experiment,
  key: Key,
  compiled: dict[tuple, Evaluate] | None,
  support: ClientData,
  query: ClientData,
  scoring: str,
  label: str = 'evaluation',
) -> Evaluator:
  num_clients = support.count.shape[0]
  block = _block_size(experiment)
  compiled = {} if compiled is None else compiled

  def evaluate(stage, server, clients, views, on_models=None):
    if not views:
      return {}
    program = stage.name, tuple(views), on_models is not None
    if program not in compiled:
      keep_models = on_models is not None
      compiled[program] = _make_program(
        experiment, stage, views, keep_models, block, scoring
      )
    with progress.progress(
      label, num_clients, unit='client', is_short=True
    ) as bar:
      return evaluate_clients(
        compiled[program],
        views,
        server,
        clients,
        support,
        query,
        key,
        block=block,
        on_progress=bar.update,
        on_models=on_models,
      )

  return evaluate


def _block_size(experiment: Experiment) -> int:
  """Return how many clients one call evaluates."""
  # As many as a round holds: that is known to fit an accelerator.
  on_cpu = target() == 'cpu'
  size = CPU_BLOCK if on_cpu else max(CPU_BLOCK, experiment.cohort_size)
  mesh = mesh_of(experiment.settings.system)
  if mesh is not None:  # no device is without a client
    size = -(-size // mesh.size) * mesh.size
  return size


def _make_program(
  experiment: Experiment,
  stage: Stage,
  views: Sequence[str],
  keep_models: bool,
  block: int,
  scoring: str,
) -> Evaluate:
  """Return the program that evaluates a block of clients in these views."""
  settings, mesh = experiment.settings, mesh_of(experiment.settings.system)
  # Per-batch numbers are those of the public code: batches of the training.
  batch_size = settings.training.batch_size
  evaluate_fn = make_evaluate(
    stage.algorithm,
    experiment.task.normalise,
    views,
    batch_size=TEST_BATCH if scoring == 'exact' else batch_size,
    score_fn=SCORINGS[scoring],
    metrics=experiment.metrics,
    keep_models=keep_models,
    clients_per_chunk=evaluation_chunk(
      settings.system.clients_per_chunk, block
    ),
    mesh=mesh,
  )
  return replicate(evaluate_fn, mesh)


def accuracies(
  scores: dict[str, Scores], train_count: Array
) -> dict[str, float]:
  """Return the mean over clients and the pooled accuracy of every view."""
  numbers = {}
  for view, score in scores.items():
    summary = summarise(score, train_count)
    numbers[f'{view}/accuracy'] = summary['mean']
    numbers[f'{view}/pooled'] = summary['pooled']
    numbers |= {f'{view}/{name}': summary[name] for name in score.own or {}}
  return numbers


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
