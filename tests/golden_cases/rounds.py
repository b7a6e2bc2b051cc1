"""Play the rounds of a case, and compare all that it stores of them."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import local_training
from fedjax_pfl.core.algorithm import Algorithm
from fedjax_pfl.federated.cohort import all_send
from golden_cases.inputs import (
  KEY,
  case_task,
  client_rows,
  clients_data,
  finetuning,
  of,
  stepwise,
  training,
)


class Update(NamedTuple):
  """The results of the local training of one client."""

  client: Any
  upload: Any
  metrics: dict[str, Any]
  fits: list[tuple[Any, local_training.FitInfo]]  # every (tree, info), in turn


class Round(NamedTuple):
  """The state after a round."""

  number: int  # from 1
  updates: dict[int, Update]  # of its participants
  server: Any
  clients: list[Any]  # what each keeps


class Replay(NamedTuple):
  """What a method computes of that which its cases store.

  Names of a case end with '/client{i}/round{n}', or begin with it; what a case
  does not store is passed over.
  """

  steps: Callable[[Update], dict]  # {name: of every step}
  trained: Callable | None = lambda update: update.fits[0][0]
  kept: Callable[[Any, Any], Any] = lambda client, uploaded: {}
  server: Callable[[Any], dict] = lambda server: {'global': server.params}
  loss: Callable[[Update], Any] = lambda update: update.metrics['loss']
  views: Mapping[str, str] = MappingProxyType({})  # {its name in a case: view}
  run: Callable = stepwise


def rows(values, update, number=-1):
  """Return what one of the fits has of each step, without padding."""
  return values[: int(update.fits[number][1].num_steps)]


def losses_of(number: int = 0) -> Callable[[Update], dict]:
  """Return the losses before every step of one of the fits."""
  return lambda update: {
    'step_loss': rows(update.fits[number][1].losses, update, number)
  }


def build(case, name, task=None, **hp) -> Algorithm:
  """Return the algorithm of a case."""
  module = load(name)
  hp = {'train': training(case), 'finetune': finetuning(case), **hp}
  stages = module.build(task or case_task(case), module.HParams(**hp))
  return stages[0].algorithm


def replay(case, algorithm: Algorithm, how: Replay, each=None) -> Round:
  """Compare all rounds and the last views; return the last round.

  each: Round -> None, what a case compares besides.
  """
  train, test = clients_data(case)
  uploaded = [algorithm.init_server(KEY(0)).params] * case['clients']
  losses = {}
  for done in run_rounds(case, algorithm, train, how.run):
    number = done.number
    for i, update in done.updates.items():
      place = f'client{i}/round{number}'
      if how.trained:
        has_upload = any(
          key.startswith(f'upload/{place}') for key in case.arrays
        )
        name = f'upload/{place}' if has_upload else place
        case.check(name, how.trained(update))
      for name, values in how.steps(update).items():
        case.check(f'{name}/{place}', values)
      losses[number, i], uploaded[i] = how.loss(update), update.upload
    for name, tree in how.server(done.server).items():
      case.check(f'{name}/round{number}', tree)
    for i, client in enumerate(done.clients):
      for name, tree in how.kept(client, uploaded[i]).items():
        case.check(name.format(f'client{i}', f'round{number}'), tree)
    if each:
      each(done)
  check_losses(case, losses)
  check_views(case, algorithm, done, train, test, how.views)
  return done


def run_rounds(
  case, algorithm: Algorithm, train, run=stepwise
) -> Iterator[Round]:
  """Yield every round of the case.

  Client after client and step after step in Python: see inputs.py. With
  run=jax.jit a client's round is one program: quicker from some hundred steps
  of a narrow network on.
  """
  server = algorithm.init_server(KEY(0))
  clients = [
    algorithm.init_client(server, of(train, i), KEY(0))
    for i in range(case['clients'])
  ]
  local_update = run(with_fits(algorithm))
  for number, cohort in enumerate(case['participants'], start=1):
    updates = {}
    for i in cohort:
      down = algorithm.download(server, clients[i])
      updates[i] = local_update(down, clients[i], of(train, i), KEY(0))
      clients[i] = updates[i].client
    uploads = jax.tree.map(
      lambda *leaves: jnp.stack(leaves), *(u.upload for u in updates.values())
    )
    ids = jnp.array(cohort)
    senders = all_send(ids, train.count[ids], train)
    server = algorithm.aggregate(server, uploads, senders)
    server = algorithm.post_aggregate(server, train, KEY(0))
    yield Round(number, updates, server, clients)


def with_fits(algorithm: Algorithm):
  """Return local_update with all its fits, also those it does not return."""

  def local_update(*args):
    fits = []

    def recorded(*args, fit=local_training.fit, **kwargs):
      fits.append(fit(*args, **kwargs))
      return fits[-1]

    with mock.patch.object(local_training, 'fit', recorded):
      client, upload, metrics = algorithm.local_update(*args)
    return Update(client, upload, metrics, fits)

  return local_update


def check_losses(case, losses):
  """Compare {(round, client): loss} with a table of either orientation."""
  want = case.arrays.get('loss')
  if want is None:
    return
  absent = -1.0 if (want == -1).any() else np.nan
  clients_first = (
    want.shape == (case['clients'], case['rounds']) != want.T.shape
  )
  got = np.full(want.shape, absent)
  for (number, i), loss in losses.items():
    got[(i, number - 1) if clients_first else (number - 1, i)] = loss
  case.check('loss', got)


def check_views(case, algorithm, done, train, test, names):
  """Compare views, {prefix of the case: view}, of all clients."""

  @stepwise
  def personalize(server, client, data):
    models = algorithm.personalize(server, client, data, KEY(0))
    return {prefix: models[view] for prefix, view in names.items()}

  models = [
    personalize(done.server, client, of(train, i))
    for i, client in enumerate(done.clients)
  ]
  for prefix in names:
    check_models(case, algorithm, [one[prefix] for one in models], test, prefix)
  if 'final/logits' in case.digests:
    check_final(case, algorithm, done.server, test)


def check_models(case, algorithm, models, test, prefix):
  """Compare logits, accuracies and losses of one model for each client."""
  scores = [
    evaluated(algorithm, model, test, i) for i, model in enumerate(models)
  ]
  for i, (logits, _, _) in enumerate(scores):
    case.check(f'{prefix}/client{i}/logits', logits)
  case.check(f'{prefix}/accuracy', [accuracy for _, accuracy, _ in scores])
  case.check(f'{prefix}/loss', [loss for _, _, loss in scores])


def check_final(case, algorithm, server, test):
  scores = [
    evaluated(algorithm, server.params, test, i) for i in range(case['clients'])
  ]
  case.check('final/logits', np.stack([logits for logits, _, _ in scores]))
  scale = 1 if case.arrays['final/accuracy'].max() > 1 else 0.01
  case.check('final/accuracy', [scale * hits for _, hits, _ in scores])


def evaluated(algorithm, model, test, i):
  """Return logits, accuracy in percent and loss on the tests of client i."""
  x, y = client_rows(test, i)
  logits = np.asarray(algorithm.predict(model, x, jnp.ones(len(x))))
  y = np.asarray(y)
  own = np.take_along_axis(logits, y[:, None], 1)[:, 0]
  loss = np.log(np.exp(logits).sum(1)) - own
  return logits, 100 * np.mean(logits.argmax(1) == y), loss.mean()


def accuracies(algorithm, models, test):
  return [
    evaluated(algorithm, model, test, i)[1] for i, model in enumerate(models)
  ]
