"""The end of a run: the last evaluation, its models, and its result.

Where examples are kept for choosing, the last round and the one chosen on them
are evaluated; `select` says which of the two is the result.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around.aggregation import attackers, left_out
from fedjax_pfl.around.attacks import BACKDOORS, opened
from fedjax_pfl.core import atomic_files, trees
from fedjax_pfl.core.algorithm import OneOf
from fedjax_pfl.core.types import Params, Scores
from fedjax_pfl.data.batching import is_float
from fedjax_pfl.data.client_data import label_counts_of_clients
from fedjax_pfl.evaluation.choices import best_rounds, best_views, main_view
from fedjax_pfl.evaluation.measures import ACCURACY
from fedjax_pfl.evaluation.summary import accuracies, summarise
from fedjax_pfl.runs.client_scores import Clients, correct_of
from fedjax_pfl.runs.model_file import save_model
from fedjax_pfl.runs.run_dir import METRICS, load_metrics, model_digest
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.validate import effective
from fedjax_pfl.training import best_models, multihost
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import Evaluator, States
from fedjax_pfl.training.state import Training, save_state

NUM_LAST = 10  # evaluations of the global model, of which a mean is stored


class Evaluated(NamedTuple):
  """The evaluation of one round, in all views."""

  states: States
  about: dict[str, Any]  # round and view
  scores: dict[str, Scores]
  unseen: dict[str, Scores]  # of clients who came later; {} without any
  models: 'Models'


def finalize(training: Training) -> None:
  """Evaluate the last models; write models, clients.npz and result.json."""
  began = time.perf_counter()
  experiment, evaluator = training.experiment, training.evaluator
  select = experiment.settings.evaluation.select
  evaluated = _evaluate(training)
  result, last = evaluated[select], len(experiment.stages) - 1
  finished = best_models.evaluate_finished(evaluator, training.state.kept)
  of_server = evaluator.global_model(last, result.states[0])
  validation = _validation(training, result) if len(evaluated) > 1 else None
  scores = with_success(experiment, evaluator, result.states, result.scores)
  evaluated[select] = result = result._replace(scores=scores)
  if state := experiment.privacy.without_noise(training.state):
    save_state(training._replace(state=state), keep=1)  # in every process
  if not multihost.is_first():
    return
  clients = _clients(experiment, result, validation)
  summary = _summary(training, clients, evaluated, finished, of_server)
  run = training.run
  result.models.save(training, result.about['round'])
  run.write_clients(clients)
  if digest := model_digest(run.path):  # by which runs recognise their start
    summary['model'] = digest
  seconds = float(training.state.seconds) + time.perf_counter() - began
  run.write_result(seconds=seconds, **summary)


def _evaluate(training: Training) -> dict[str, Evaluated]:
  """Return {select: the evaluation of that round}: the last, and the chosen."""
  experiment, evaluator = training.experiment, training.evaluator
  settings, chosen = experiment.settings, training.state.chosen
  last, views = len(experiment.stages) - 1, settings.final_views

  def of_round(states, number, view):
    saved = settings.evaluation.save_clients
    models = Models(experiment.privacy.saved_clients(saved))
    scores = evaluator.clients(last, states, views, on_models=models.add)
    unseen = evaluator.unseen(last, states[0], views)
    about = {'round': number, 'view': view}
    return Evaluated(states, about, scores, unseen, models)

  main = main_view(settings.evaluation.views)
  evaluated = {'last': of_round(training.states, experiment.rounds, main)}
  if not chosen:
    return evaluated
  if chosen.round < 0:  # a last stage without rounds: its start is chosen
    chosen, *_ = best_models.choose(
      evaluator, chosen, last, training.states, training.done
    )
  number = int(chosen.round)
  about = {
    'round': number,
    'view': settings.candidate_views[int(chosen.view)],
    f'validation_{settings.evaluation.tune_by}': float(chosen.accuracy),
  }
  best = evaluated['last']
  if number != experiment.rounds:
    states = best_models.chosen_states(experiment, chosen)
    best = of_round(states, number, about['view'])
  return {**evaluated, 'validation': best._replace(about=about)}


def _validation(training: Training, result: Evaluated) -> Scores:
  """Return the scores on the validation examples, known or found again."""
  number, view = result.about['round'], result.about['view']
  if number == training.done and training.validation:
    return training.validation[f'validation/{view}']
  experiment = training.experiment
  last, views = len(experiment.stages) - 1, experiment.settings.candidate_views
  return training.evaluator.validation(last, result.states, views)[view]


def with_success(
  experiment: Experiment,
  evaluator: Evaluator,
  states: States,
  scores: dict[str, Scores],
) -> dict[str, Scores]:
  """Return the scores of all views, with the success of a backdoor if any."""
  attack, last = experiment.settings.attack, len(experiment.stages) - 1
  if attack.name not in BACKDOORS:
    return scores
  train, test = experiment.eval_data
  attack, server = attack._replace(task=experiment.task), states[0]
  of_run = experiment.stages[last].algorithm, server, experiment.train
  ids = np.array(attackers(server))
  data = train, opened(test, attack, *of_run, ids)
  label = 'evaluation of the backdoor'
  success = evaluator.clients(last, states, tuple(scores), data, label=label)
  return {
    view: score._replace(
      own={**(score.own or {}), 'backdoor': accuracies(success[view])}
    )
    for view, score in scores.items()
  }


class Models:
  """<view>_client<id>.npz for the clients of `save_clients`, and global.npz.

  The latter is the view 'initial', if it is the same for all clients.
  """

  def __init__(self, save_clients: tuple[int, ...]):
    self.save_clients = save_clients
    self.of_clients: dict[tuple[str, int], Params] = {}
    self.shared: Params | None = None  # 'initial' of client 0
    self.is_shared = True

  def add(self, ids: np.ndarray, models: dict[str, Params]) -> None:
    """Add those models of these clients that are to be saved."""
    for view, stacked in models.items():
      for row, client in enumerate(ids.tolist()):
        if client in self.save_clients:
          model = trees.gather(stacked, row)
          model = model.own if isinstance(model, OneOf) else model
          self.of_clients[view, client] = model
    if 'initial' in models:
      stacked = models['initial']
      if self.shared is None:
        self.shared = trees.gather(stacked, 0)
      equal = lambda leaf, rows: bool(jnp.all(rows == leaf))
      same = jax.tree.leaves(jax.tree.map(equal, self.shared, stacked))
      self.is_shared = self.is_shared and all(same)

  def save(self, training: Training, rounds: int) -> None:
    """Write the chosen models, and the global model if there is one."""
    experiment, settings = training.experiment, training.experiment.settings
    about = {
      'model': settings.model.name,
      'algorithm': settings.algorithm,
      'dataset': settings.data.dataset,
      'image_shape': experiment.dataset.train.x.shape[1:],
      'num_classes': experiment.dataset.num_classes,
      'rounds': rounds,
    }
    names, saved = _models_of_clients(settings), {}
    has_global = self.shared is not None and self.is_shared
    for (view, client), params in self.of_clients.items():
      if view != 'initial' or not has_global:
        more = {'view': view, 'client': client, 'model': names[client]}
        saved[f'{view}_client{client}'] = params, more
    if has_global:
      saved['global'] = self.shared, {'view': 'initial'}
    with atomic_files.writing(training.run.path):
      for name, (params, more) in saved.items():
        save_model(training.run.model_path(name), params, about | more)


def _clients(
  experiment: Experiment, result: Evaluated, validation: Scores | None
) -> Clients:
  """Return what clients.npz says."""
  data, dataset = experiment.settings.data, experiment.dataset
  names, classes = experiment.data.names, dataset.class_names
  liars = attackers(result.states[0])

  def of(ids, train, test, scores):
    fields = {'names': np.array(names)[ids]} if names else {}
    if not is_float(train.y):
      count = partial(label_counts_of_clients, num_classes=dataset.num_classes)
      fields |= {'train_classes': count(train), 'test_classes': count(test)}
    return Clients(ids, np.asarray(train.count), scores, **fields)

  seen, later = np.split(np.arange(data.num_clients), [data.num_seen_clients])
  clients = of(seen, experiment.train, experiment.eval_data[1], result.scores)
  if result.unseen:
    train = experiment.data.splits['unseen_train']
    test = experiment.unseen_eval_data[1]
    clients = clients._replace(unseen=of(later, train, test, result.unseen))
  return clients._replace(
    validation=validation,
    class_names=np.array(classes) if classes else None,
    attackers=np.isin(seen, liars) if liars else None,
  )


def _summary(
  training: Training,
  clients: Clients,
  evaluated: dict[str, Evaluated],
  finished: dict[str, Scores],
  of_server: dict[str, Any],
) -> dict[str, Any]:
  """Return what result.json says, but for seconds and the model.

  `finished` are the scores of the best models, by view, where clients keep
  them; `of_server` is the evaluation of the global model, {} without one.
  """
  experiment, more = training.experiment, {}
  settings = experiment.settings
  select = settings.evaluation.select
  result = evaluated[select]
  if len(evaluated) > 1:
    more['select'] = select
    for name, other in evaluated.items():
      more[name] = {**other.about, **_summaries(experiment, clients, other)}
  if of_server:
    more['global'] = {**of_server, 'last10': _last_evaluations(training)}
  if experiment.timing:
    more['sim_seconds'] = float(training.state.sim_seconds)
  sign = experiment.measure.sign
  if families := best_views(clients.scores, clients.counted, sign):
    more['test_best_view'] = families
  server = result.states[0]
  told = {'attackers': attackers(server), 'left_out': left_out(server)}
  if told := {name: value for name, value in told.items() if value}:
    more['lies'] = told
  more |= experiment.privacy.summary()
  if experiment.tests_by_batch:
    more['batch_statistics'] = True
  if experiment.task.others:
    more['models'] = _by_model(experiment, clients)
  if experiment.measure != ACCURACY:
    more['measure'] = experiment.measure.name
  return {
    'algorithm': settings.algorithm,
    'hp': effective(settings),
    'dataset': experiment.dataset.name,
    'rounds': experiment.rounds,
    **_summaries(experiment, clients, result),
    'test_best': _best_rounds(training, clients, finished),
    **more,
  }


def _best_rounds(
  training: Training, clients: Clients, finished: dict[str, Scores]
) -> dict[str, dict[str, Any]]:
  """Return the best rounds of the last stage, and finished models, by view."""
  experiment, sign = training.experiment, training.experiment.measure.sign
  count = clients.counted
  num_labels = next(iter(clients.scores.values())).count  # of tokens, too
  views = *experiment.settings.evaluation.eval_views, *finished
  first = experiment.rounds - experiment.stages[-1].rounds
  correct = correct_of(training.run.scores, first)
  best = {
    view: best_rounds(correct[view], num_labels, count, sign)
    for view in dict.fromkeys(views)
    if view in correct
  }
  for view, scores in finished.items():
    best.setdefault(view, {})['finished'] = summarise(scores, count, sign)
  return best


def _summaries(
  experiment: Experiment, clients: Clients, evaluated: Evaluated
) -> dict[str, Any]:
  """Return the summaries of all views, and of clients who came later if any."""
  who = {'views': (evaluated.scores, clients.counted)}
  if evaluated.unseen:
    who['unseen'] = evaluated.unseen, clients.unseen.train_count
  return {
    name: {
      view: summarise(score, count, experiment.measure.sign)
      for view, score in scores.items()
    }
    for name, (scores, count) in who.items()
  }


def _models_of_clients(settings: Settings) -> list[str]:
  """Return the name of the model of each client."""
  groups, clients = settings.architectures, settings.data.num_seen_clients
  if not groups.models:
    return [settings.model.name] * clients
  return [groups.models[group] for group in groups.of_clients(clients)]


def _by_model(
  experiment: Experiment, clients: Clients
) -> dict[str, dict[str, Any]]:
  """Return {model: {view: summary}} over the clients with this model."""
  names = np.array(_models_of_clients(experiment.settings))
  count = clients.counted
  return {
    name: {
      view: summarise(
        trees.gather(scores, rows), count[rows], experiment.measure.sign
      )
      for view, scores in clients.scores.items()
    }
    for name in dict.fromkeys(names.tolist())
    for rows in [np.flatnonzero(names == name)]
  }


def _last_evaluations(training: Training) -> dict[str, float | int]:
  """Return mean and deviation (ddof 0) of the last global accuracies."""
  path, stage = training.run.path, training.experiment.stages[-1].name
  name = f'global/{training.experiment.measure.name}'
  lines = load_metrics(path) if (path / METRICS).is_file() else []
  values = [
    line[name]
    for line in lines
    if line['round'] and line['stage'] == stage and line.get(name) is not None
  ][-NUM_LAST:]
  if not values:
    return {}
  mean, std = float(np.mean(values)), float(np.std(values))
  return {'mean': mean, 'std': std, 'evaluations': len(values)}
