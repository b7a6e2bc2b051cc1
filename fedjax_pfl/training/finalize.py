"""The end of a run: the last evaluation, its models, and its result.

Where examples are kept for choosing, the last round and the one chosen on them
are evaluated; `select` says which of the two is the result.
"""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import atomic_files, trees
from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.types import ClientData, Params, Scores
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.evaluation.test_selection import best_views
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.runs.run_dir import METRICS, Run, load_metrics
from fedjax_pfl.training import multihost
from fedjax_pfl.training.advance import validate
from fedjax_pfl.training.best_rounds import (
  chosen_states,
  describe,
  evaluate_finished,
  summarise_best,
)
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.evaluators import last_evaluations
from fedjax_pfl.training.state import Training
from fedjax_pfl.training.views import candidate_views, final_views, main_view
from fedjax_pfl.training.warm_start import model_digest


class ModelExport:
  """<view>_client<id>.npz for the clients of `save_clients`, and global.npz.

  global.npz is the view 'initial' if it is the same for all clients; else the
  method has no global model.
  """

  def __init__(self, experiment: Experiment, run: Run):
    self.experiment = experiment
    self.run = run
    self.chosen: dict[str, tuple[Params, dict[str, Any]]] = {}
    self.shared: Params | None = None  # 'initial' of client 0
    self.is_shared = False

  def add(self, ids: np.ndarray, models: dict[str, Params]) -> None:
    """Add those models of these clients that are to be saved."""
    save_clients = self.experiment.settings.evaluation.save_clients
    for view, stacked in models.items():
      for place, client in enumerate(ids.tolist()):
        if client in save_clients:
          about = {'view': view, 'client': client}
          model = trees.gather(stacked, place)
          self.chosen[f'{view}_client{client}'] = model, about
    if 'initial' in models:
      self._compare(models['initial'])

  def _compare(self, stacked: Params) -> None:
    """Compare the models of these clients with that of client 0."""
    if self.shared is None:
      self.shared, self.is_shared = trees.gather(stacked, 0), True
    same = jax.tree.map(
      lambda leaf, rows: bool(jnp.all(rows == leaf)), self.shared, stacked
    )
    self.is_shared = self.is_shared and all(jax.tree.leaves(same))

  def save(self) -> None:
    """Write the chosen models, and the global model if there is one."""
    settings = self.experiment.settings
    about_all = {
      'model': settings.model.name,
      'algorithm': settings.algorithm,
      'dataset': settings.data.dataset,
      'image_shape': self.experiment.dataset.train.x.shape[1:],
      'num_classes': self.experiment.dataset.num_classes,
      'rounds': self.experiment.rounds,
    }
    if self.is_shared:
      self.chosen = {
        name: (params, about)
        for name, (params, about) in self.chosen.items()
        if about['view'] != 'initial'
      }
      self.chosen['global'] = self.shared, {'view': 'initial'}
    for name, (params, about) in self.chosen.items():
      save_model(self.run.model_path(name), params, {**about_all, **about})


class Evaluated(NamedTuple):
  """The evaluation of one round, in all views."""

  scores: dict[str, Scores]
  unseen: dict[str, Scores]  # of clients who came later; {} without any
  models: ModelExport


def finalize(training: Training) -> None:
  """Evaluate the last models; write models, clients.npz and result.json."""
  began = time.perf_counter()
  training = _with_choice(training)
  experiment, evaluator = training.experiment, training.evaluator
  last, views = len(experiment.stages) - 1, final_views(experiment.settings)
  states, evaluated = _selectable(training), {}
  for name, own in states.items():
    if 'last' in evaluated and own is states['last']:
      evaluated[name] = evaluated['last']  # validation chose the last round
      continue
    models = ModelExport(experiment, training.run)
    scores = evaluator.clients(last, own, views, models.add)
    unseen = evaluator.unseen(last, own[0], views)
    evaluated[name] = Evaluated(scores, unseen, models)
  select = experiment.settings.evaluation.select
  finished = evaluate_finished(evaluator, training.state.test_best)
  of_server = evaluator.global_model(last, states[select][0])
  validation = _on_validation(training, states[select])
  if multihost.is_first():
    with atomic_files.writing(training.run.path):
      evaluated[select].models.save()
    write_result(
      training,
      evaluated[select],
      float(training.state.seconds) + time.perf_counter() - began,
      of_server,
      finished,
      _selections(training, evaluated),
      validation,
    )
  training.run.close()


def _with_choice(training: Training) -> Training:
  """Return the run; of one without rounds the start is chosen."""
  state = training.state
  if not state.chosen or state.chosen.round >= 0:
    return training
  chosen, _ = validate(training, len(training.experiment.stages) - 1)
  return training._replace(state=state._replace(chosen=chosen))


def _selectable(training: Training) -> dict[str, tuple[Server, Client]]:
  """Return {select: the states whose models are evaluated}."""
  states, chosen = training.states, training.state.chosen
  if not chosen:
    return {'last': states}
  if chosen.round == training.experiment.rounds:
    return {'last': states, 'validation': states}
  others = chosen_states(training.experiment, chosen)
  return {'last': states, 'validation': others}


def _on_validation(
  training: Training, states: tuple[Server, Client]
) -> Scores | None:
  """Return the scores of the result's models on the validation examples."""
  experiment, chosen = training.experiment, training.state.chosen
  if not chosen:
    return None
  evaluation = experiment.settings.evaluation
  views = candidate_views(experiment.settings)
  view = main_view(evaluation.views)
  if evaluation.select == 'validation':
    view = views[int(chosen.view)]
  last = len(experiment.stages) - 1
  return training.evaluator.validation(last, states, views)[view]


def _selections(
  training: Training, evaluated: dict[str, Evaluated]
) -> dict[str, Any]:
  """Return what result.json has of both rounds; {} without a choice."""
  experiment, chosen = training.experiment, training.state.chosen
  if not chosen:
    return {}
  evaluation = experiment.settings.evaluation
  about = {
    'last': {
      'round': experiment.rounds,
      'view': main_view(evaluation.views),
    },
    'validation': describe(experiment, chosen),
  }
  return {'select': evaluation.select} | {
    name: {**about[name], **_summaries(experiment, own)}
    for name, own in evaluated.items()
  }


def _summaries(experiment: Experiment, evaluated: Evaluated) -> dict[str, Any]:
  """Return the summaries of all views, and of clients who came later if any."""

  def of(train, scores):
    return {view: summarise(own, train.count) for view, own in scores.items()}

  summaries = {'views': of(experiment.train, evaluated.scores)}
  if evaluated.unseen:
    summaries['unseen'] = of(experiment.unseen.train, evaluated.unseen)
  return summaries


def _unseen_clients(
  experiment: Experiment, scores: Mapping[str, Scores]
) -> Clients | None:
  """Return the rows of clients.npz of those who came later, if there are any.

  Their ids go on where those of the others end.
  """
  if not scores:
    return None
  data = experiment.settings.data
  return Clients(
    ids=np.arange(data.num_seen_clients, data.num_clients),
    scores=dict(scores),
    **_counts(
      experiment, experiment.unseen.train, experiment.unseen_eval_data[1]
    ),
  )


def _counts(
  experiment: Experiment, train: ClientData, test: ClientData
) -> dict[str, np.ndarray]:
  """Return how many examples clients have: [K], and of each class [K, Y]."""
  num_classes = experiment.dataset.num_classes
  return {
    'train_count': np.asarray(train.count),
    'train_classes': label_counts_of_clients(train, num_classes),
    'test_classes': label_counts_of_clients(test, num_classes),
  }


def write_result(
  training: Training,
  evaluated: Evaluated,
  seconds: float,
  of_server: Mapping[str, Any] = {},
  finished: Mapping[str, Scores] = {},
  selections: Mapping[str, Any] = {},
  validation: Scores | None = None,
) -> None:
  """Write clients.npz, then result.json: the run is finished.

  `of_server` is the evaluation of the global model; {} without one; `finished`
  that of the best models, by view, where clients keep them; `selections` has
  'select', 'last' and 'validation', where there is a choice; `validation` are
  the scores on the examples kept for choosing.
  """
  experiment, run = training.experiment, training.run
  train, test = experiment.train, experiment.eval_data[1]
  scores, more = evaluated.scores, {}
  if of_server:
    metrics = load_metrics(run.path) if (run.path / METRICS).is_file() else []
    last = last_evaluations(metrics, experiment.stages[-1].name)
    more['global'] = {**of_server, 'last10': last}
  if families := best_views(scores, train.count):
    more['test_best_view'] = families
  if digest := model_digest(run.path):
    more['model'] = digest  # by which runs that start from it are recognised
  run.write_clients(
    scores,
    np.arange(experiment.settings.data.num_seen_clients),
    **_counts(experiment, train, test),
    unseen=_unseen_clients(experiment, evaluated.unseen),
    validation=validation,
  )
  run.write_result(
    algorithm=experiment.settings.algorithm,
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=seconds,
    **_summaries(experiment, evaluated),
    test_best=summarise_best(
      training.state.test_best, test.count, train.count, finished
    ),
    **selections,
    **more,
  )
