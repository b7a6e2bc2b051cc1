"""Accuracy on a client's own classes and on others (FedBABU, Table 20).

Each view is asked once for all test examples of a client, own classes and
others in the same batches, so that they share the statistics of BatchNorm. A
client whose test set has own classes only has no accuracy on others: NaN.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import numpy as np

from fedjax_pfl.analysis.classes import Split, owned_classes, split_accuracy
from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.types import Key
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.metrics import ClassScores, score_classes
from fedjax_pfl.training.experiment import Experiment

BLOCK = 10  # clients evaluated between two signs of life


def id_ood(
  experiment: Experiment,
  server: Server,
  clients: Client,
  views: Sequence[str],
  key: Key,
  on_progress: Callable[[int], None] | None = None,
) -> dict[str, Split]:
  """Return {view: own and other [K]} with logits over all classes.

  The key is that of the run's evaluation: views are then those it evaluated.
  """
  scores, owned = score_by_class(
    experiment, server, clients, views, key, on_progress
  )
  return {
    view: split_accuracy(score.correct, score.count, owned)
    for view, score in scores.items()
  }


def score_by_class(
  experiment: Experiment,
  server: Server,
  clients: Client,
  views: Sequence[str],
  key: Key,
  on_progress: Callable[[int], None] | None = None,
) -> tuple[dict[str, ClassScores], np.ndarray]:
  """Return {view: correct and count [K, Y]}, and who trains on what [K, Y]."""
  num_classes = experiment.dataset.num_classes
  evaluate = make_evaluate(
    experiment.stages[-1].algorithm,
    experiment.task.normalise,
    views,
    # As in the run itself: on a CPU clients run one after the other.
    clients_per_chunk=1 if jax.default_backend() == 'cpu' else BLOCK,
    score_fn=partial(score_classes, num_classes),
  )
  scores = evaluate_clients(
    evaluate,
    views,
    server,
    clients,
    experiment.train,
    experiment.test,
    key,
    block=BLOCK,
    on_progress=on_progress,
  )
  return scores, owned_classes(experiment.train, num_classes)
