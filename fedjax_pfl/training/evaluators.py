"""How a run evaluates the models of its clients, and the server's own.

The models of clients are evaluated on each client's own test examples; the
global model on the whole test set, in stored order and in batches of
TEST_BATCH. A method whose server holds a part of the model only has none.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.algorithm import Client, Server, Stage
from fedjax_pfl.core.types import ClientData, Key, Scores
from fedjax_pfl.data.client_data import client_of, stack_clients
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.evaluate import evaluate_clients
from fedjax_pfl.evaluation.summary import other_measures, own_measures
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Program

OnModels = Callable[[np.ndarray, dict[str, Any]], None]
States = tuple[Server, Client]


class Evaluator:
  """The evaluations of a run, by the place of a stage, with its own `key`."""

  def __init__(
    self, experiment: Experiment, key: Key, program: Program | None = None
  ):
    self.experiment, self.key = experiment, key
    self._program = program or Program(experiment)
    self._numbers = self._program.numbers_of(experiment.settings)
    self._tests: ClientData | None = None  # the whole test set

  def validation(
    self, place: int, states: States, views: Sequence[str]
  ) -> dict[str, Scores]:
    """Return {view: Scores [K]} on the validation examples."""
    data = self.experiment.train, self.experiment.validation
    more = {'scoring': 'exact', 'label': 'validation'}
    return self.clients(place, states, views, data, **more)

  def unseen(
    self, place: int, server: Server, views: Sequence[str]
  ) -> dict[str, Scores]:
    """Return the same for the clients who come after training; {} without any.

    The key of evaluation is fold_in(key, K), K the clients that took part.
    """
    experiment = self.experiment
    if experiment.unseen is None:
      return {}
    from fedjax_pfl.evaluation.new_clients import with_new_clients

    num_seen = experiment.settings.data.num_seen_clients
    key = jax.random.fold_in(self.key, num_seen)
    own = (server, ()), views, experiment.unseen_eval_data
    more = {'label': 'evaluation of unseen clients', 'edit': with_new_clients}
    return self.clients(place, *own, key=key, **more)

  def clients(
    self,
    place: int,
    states: States,
    views: Sequence[str],
    data: tuple[ClientData, ClientData] | None = None,
    *,
    scoring: str | None = None,
    on_models: OnModels | None = None,
    label: str = 'evaluation',
    key: Key | None = None,
    **edit: Callable[[Stage], Stage],
  ) -> dict[str, Scores]:
    """Return {view: Scores [K]}; blocks of models are handed to `on_models`."""
    if not views:
      return {}
    server, clients = states
    data = data or self.experiment.eval_data
    scoring = scoring or self.experiment.settings.evaluation.scoring
    how, number = {'scoring': scoring, **edit}, data[0].count.shape[0]
    is_shown = {'unit': 'client', 'is_short': True}
    with progress.progress(label, number, **is_shown) as bar:
      return evaluate_clients(
        self._program.evaluation(
          place, tuple(views), keep_models=on_models is not None, **how
        ),
        views,
        (server, self._numbers),
        clients,
        *data,
        self.key if key is None else key,
        block=self._program.block,
        on_progress=bar.update,
        on_models=on_models,
      )

  def global_model(self, place: int, server: Server) -> dict[str, Any]:
    """Return measures of the server's model; {} if none is there, or asked."""
    experiment = self.experiment
    algorithm = experiment.stages[place].algorithm
    asked = experiment.settings.evaluation.eval_global_model
    if not asked or not algorithm.global_model:
      return {}
    if self._tests is None:  # on the device, at the first evaluation
      self._tests = as_one_client(experiment.dataset.test)
    evaluate_fn = self._program.global_evaluation(place)
    scores = evaluate_fn(self._numbers, server, self._tests)
    count = int(scores.count)
    return {
      'accuracy': 100 * int(scores.correct) / max(count, 1),
      **{name: float(own) for name, own in other_measures(scores).items()},
      **own_measures(scores, np.True_),
      'count': count,
    }


def as_one_client(images: Images) -> ClientData:
  """Return all images as those of one client: index [N], count []."""
  return client_of(stack_clients(images, [np.arange(len(images.y))]), 0)
