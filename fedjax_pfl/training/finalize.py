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
from fedjax_pfl.core.types import ClientData, Params, Scores
from fedjax_pfl.data.label_counts import label_counts_of_clients
from fedjax_pfl.evaluation.summary import summarise
from fedjax_pfl.evaluation.test_selection import best_views
from fedjax_pfl.runs.client_scores import Clients
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.runs.run_dir import METRICS, Run, load_metrics
from fedjax_pfl.training import multihost
from fedjax_pfl.training.best_rounds import (
  chosen_states,
  describe,
  evaluate_finished,
  summarise_best,
)
from fedjax_pfl.training.build import Experiment, mesh_of
from fedjax_pfl.training.cadence import validate
from fedjax_pfl.training.evaluators import last_evaluations
from fedjax_pfl.training.seed_run import SeedRun
from fedjax_pfl.training.state import State
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


def finalize(seed_run: SeedRun) -> None:
  """Evaluate the last models; write models, clients.npz and result.json."""
  began = time.perf_counter()
  seed_run = _with_choice(seed_run)
  experiment, state = seed_run.experiment, seed_run.state
  last = experiment.stages[-1]
  states, evaluated = _selectable(experiment, state), {}
  for name, own in states.items():
    if own is state and 'last' in evaluated:  # validation chose the last round
      evaluated[name] = evaluated['last']
      continue
    models = ModelExport(experiment, seed_run.run)
    views = final_views(experiment.settings)
    scores = seed_run.evaluators.clients(
      last, own.server, own.clients, views, models.add
    )
    unseen = {}
    if seed_run.evaluators.unseen is not None:
      unseen = seed_run.evaluators.unseen(last, own.server, (), views)
    evaluated[name] = Evaluated(scores, unseen, models)
  select = experiment.settings.evaluation.select
  result = evaluated[select]
  finished = evaluate_finished(
    experiment, seed_run.evaluators.clients, last, state.test_best
  )
  of_server = seed_run.evaluators.global_model(last, states[select].server)
  validation = _on_validation(seed_run, states[select])
  if multihost.is_first():
    with atomic_files.writing(seed_run.run.path):
      result.models.save()
    seconds = float(state.seconds) + time.perf_counter() - began
    write_result(
      experiment,
      *(seed_run.run, result.scores, of_server, state, seconds, finished),
      _selections(experiment, state, evaluated),
      result.unseen,
      validation,
    )
  seed_run.run.close()


def _with_choice(seed_run: SeedRun) -> SeedRun:
  """Return the seed run; of a run without rounds the start is chosen."""
  state = seed_run.state
  if not state.chosen or state.chosen.round >= 0:
    return seed_run
  chosen, _ = validate(seed_run, seed_run.experiment.stages[-1])
  return seed_run._replace(state=state._replace(chosen=chosen))


def _selectable(experiment: Experiment, state: State) -> dict[str, State]:
  """Return {select: the state whose models are evaluated}."""
  if not state.chosen:
    return {'last': state}
  if state.chosen.round == experiment.rounds:
    return {'last': state, 'validation': state}
  mesh = mesh_of(experiment.settings.system)
  server, clients = chosen_states(experiment, state.chosen, mesh)
  chosen = state._replace(server=server, clients=clients)
  return {'last': state, 'validation': chosen}


def _on_validation(seed_run: SeedRun, state: State) -> Scores | None:
  """Return the scores of the result's models on the validation examples."""
  settings = seed_run.experiment.settings
  if not state.chosen:
    return None
  views = candidate_views(settings)
  view = main_view(settings.evaluation.views)
  if settings.evaluation.select == 'validation':
    view = views[int(state.chosen.view)]
  last = seed_run.experiment.stages[-1]
  states = state.server, state.clients
  return seed_run.evaluators.validation(last, *states, views)[view]


def _selections(
  experiment: Experiment, state: State, evaluated: dict[str, Evaluated]
) -> dict[str, Any]:
  """Return what result.json has of both rounds; {} without a choice."""
  if not state.chosen:
    return {}
  about = {
    'last': {
      'round': experiment.rounds,
      'view': main_view(experiment.settings.evaluation.views),
    },
    'validation': describe(experiment, state.chosen),
  }
  select = experiment.settings.evaluation.select
  return {'select': select} | {
    name: {
      **about[name],
      'views': _summaries(experiment.train, own.scores),
      **_of_unseen(experiment, own.unseen),
    }
    for name, own in evaluated.items()
  }


def _summaries(
  train: ClientData, scores: dict[str, Scores]
) -> dict[str, dict[str, Any]]:
  return {view: summarise(score, train.count) for view, score in scores.items()}


def _of_unseen(
  experiment: Experiment, scores: dict[str, Scores]
) -> dict[str, Any]:
  """Return the summaries of clients who came later; {} where there are none."""
  if not scores:
    return {}
  return {'unseen': _summaries(experiment.unseen.train, scores)}


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
  experiment: Experiment,
  run: Run,
  scores: dict[str, Scores],
  of_server: dict[str, Any],
  state: State,
  seconds: float,
  finished: Mapping[str, Scores] = {},
  selections: Mapping[str, Any] = {},
  unseen: Mapping[str, Scores] = {},
  validation: Scores | None = None,
) -> None:
  """Write clients.npz, then result.json: the run is finished.

  `of_server` is the evaluation of the global model; {} without one; `finished`
  that of the best models, by view, where clients keep them; `selections` has
  'select', 'last' and 'validation', where there is a choice; `unseen` are the
  scores of the clients who came later, `validation` those on the examples kept
  for choosing.
  """
  settings, more = experiment.settings, {}
  if of_server:
    metrics = load_metrics(run.path) if (run.path / METRICS).is_file() else []
    last = last_evaluations(metrics, experiment.stages[-1].name)
    more['global'] = {**of_server, 'last10': last}
  if families := best_views(scores, experiment.train.count):
    more['test_best_view'] = families
  if digest := model_digest(run.path):
    more['model'] = digest  # by which runs that start from it are recognised
  run.write_clients(
    scores,
    np.arange(settings.data.num_seen_clients),
    **_counts(experiment, experiment.train, experiment.eval_data[1]),
    unseen=_unseen_clients(experiment, unseen),
    validation=validation,
  )
  run.write_result(
    algorithm=settings.algorithm,
    dataset=experiment.dataset.name,
    rounds=experiment.rounds,
    seconds=seconds,
    views=_summaries(experiment.train, scores),
    **_of_unseen(experiment, unseen),
    test_best=summarise_best(
      state.test_best,
      experiment.eval_data[1].count,
      experiment.train.count,
      finished,
    ),
    **selections,
    **more,
  )
