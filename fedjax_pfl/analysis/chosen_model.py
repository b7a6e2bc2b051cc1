"""Which model of a finished run is meant, and that model.

Of a client: a view of the method's `personalize`, on the client's own data and
with the random numbers of the run's evaluation. Of the server: `global_model`.
Both are computed again from the last checkpoint, which has all clients.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedjax_pfl.core.algorithm import Client, Server, View
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import AnyPath, Scores
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.evaluation.choices import main_view
from fedjax_pfl.evaluation.metrics import score_view
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.program import as_one_client
from fedjax_pfl.training.state import random_streams

SERVER = 'server'


class Owner(NamedTuple):
  """Whose model of a run is meant: a client's in a view, or the server's."""

  client: int | None  # None: the server
  view: str  # '' of the server
  name: str = ''  # of the client, where it has one

  def __str__(self) -> str:
    if self.client is None:
      return 'the server'
    return f'client {self.name or self.client}, {self.view},'


def owner_of(
  settings: Settings,
  result: Mapping[str, Any],
  client: str,
  view: str,
  names: Sequence[str] = (),
) -> Owner:
  """Return whose model it is; the view of a client is that of the result if ''.

  A client goes by its name, where it has one, or by its number.
  """
  if client == SERVER:
    if view:
      expected = 'none: the server has one model, which is not personalised'
      raise bad_input('view', got=view, expected=expected)
    return Owner(None, '')
  last = settings.data.num_seen_clients - 1
  if client in names:
    client = f'{names.index(client)}'
  if not (client.isascii() and client.isdecimal() and int(client) <= last):
    expected = f'a client of the run, 0 to {last}, or {SERVER}'
    cause = 'a client who came after training: the run stores no model of it'
    raise bad_input(
      'client',
      got=client,
      expected=expected,
      choices=names or None,
      cause=cause * bool(settings.data.unseen_clients),
    )
  chosen = main_view(settings.evaluation.views)
  if settings.evaluation.select == 'validation':
    chosen = result['validation']['view']
  name = names[int(client)] if names else ''
  return Owner(int(client), view or chosen, name)


def client_names(workdir: AnyPath) -> list[str]:
  """Return the names of the clients of a run; [] where they have none."""
  names = run_dir.load_clients(workdir).names
  return [] if names is None else names.tolist()


def model_of(
  experiment: Experiment, states: tuple[Server, Client], owner: Owner
) -> tuple[View, Scores]:
  """Return the model of its owner, and its scores."""
  if owner.client is None:
    return server_model(experiment, states[0])
  algorithm, view = experiment.stages[-1].algorithm, owner.view
  views = evaluate.view_names(algorithm, *states, experiment.train)
  evaluate.check_views([view], views)
  evaluate_fn = evaluate.make_evaluate(
    algorithm, experiment.task.normalise, [view], keep_models=True
  )
  key = random_streams(experiment.settings.seed)['evaluation']
  ids = jnp.array([owner.client])
  answers = evaluate_fn(*states, ids, *experiment.eval_data, key)
  scores, models = jax.tree.map(lambda leaf: leaf[0], answers)
  return models[view], scores[view]


def server_model(experiment: Experiment, server: Server) -> tuple[View, Scores]:
  """Return the one model of the server, and its scores on all tests.

  A data set may have none of its own: those of the clients are parts of it.
  """
  model, tests = global_model(experiment, server), experiment.dataset.test
  if not len(tests.y):
    return model, Scores(jnp.array(0), jnp.array(0))
  algorithm = experiment.stages[-1].algorithm
  normalise = experiment.task.normalise
  score = partial(score_view, algorithm.predict, normalise=normalise)
  return model, jax.jit(score)(model, as_one_client(tests))


def global_model(experiment: Experiment, server: Server) -> View:
  """Return the one model of the server; refuse a method without one."""
  algorithm = experiment.stages[-1].algorithm
  if algorithm.global_model is None:
    raise bad_input(
      'client',
      got=SERVER,
      expected=f'a client: {experiment.settings.algorithm} has no global model',
      choices=[f'0 to {experiment.settings.data.num_seen_clients - 1}'],
    )
  return algorithm.global_model(server)
