"""Play the rounds of a case, and compare all that it stores of them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import load, own_defaults
from fedjax_pfl.client import local_training
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.federated.cohort import all_send
from golden_cases.inputs import (
  KEY,
  client_rows,
  losses_of,
  of,
  stepwise,
  with_fits,
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

  # {name: of every step}
  steps: Callable[[Update], dict] = lambda update: {
    'step_loss': losses_of(update.fits[0])
  }
  trained: Callable | None = lambda update: update.fits[0][0]
  kept: Callable[[Any, Any], Any] = lambda client, uploaded: {}
  server: Callable[[Any], dict] = lambda server: {'global': server.params}
  loss: Callable[[Update], Any] = lambda update: update.metrics['loss']
  views: Mapping[str, str] | None = None  # {its name in a case: view}, or all
  run: Callable = stepwise


# What cases call hyperparameters, where it is not the package's name.
NAMES = {
  'alpha': 'alpha_init',
  'classifier_decay': 'weight_decay_classifier',
  'lam': 'lambda',
  'private_decay': 'weight_decay_v',
  'shared': 'aggregated_part',
  'trainable': 'local_update_part',
}


def build_stages(case, name, task=None, **hp) -> tuple[Stage, ...]:
  """Return the stages of a method with the hyperparameters of a case."""
  module, given = load(name), {}
  for field in own_defaults(name):
    for word in (NAMES.get(field), field):
      if word in case.settings:
        given[field] = case[word]
  hp = {'train': case.training(), 'finetune': case.finetuning(), **given, **hp}
  return module.build(task or case.task(), module.HParams(**hp))


def build(case, name, task=None, **hp) -> Algorithm:
  return build_stages(case, name, task, **hp)[0].algorithm


def beginning_with(case, algorithm, **fields) -> Algorithm:
  """Return the algorithm whose server begins with arrays of the case.

  fields: of the server, with what the names of their arrays begin with.
  """
  server = algorithm.init_server(KEY(0))

  def begun(field, prefix):
    def given(path, leaf):
      name = prefix + '/'.join(key.key for key in path)
      return jnp.asarray(case.arrays[name]).reshape(leaf.shape)

    case.given(*[name for name in case.arrays if name.startswith(prefix)])
    return jax.tree_util.tree_map_with_path(given, getattr(server, field))

  begun = {field: begun(field, prefix) for field, prefix in fields.items()}
  server = server._replace(**begun)
  return algorithm._replace(init_server=lambda key: server)


def sent(up, field, name='up'):
  """Return what a client sent last; at first there is nothing."""
  return {name + '/{0}/{1}': getattr(up, field, None)}


def replay(case, algorithm: Algorithm, how: Replay, each=None) -> Round:
  """Compare all rounds and the last views; return the last round.

  each: Round -> None, what a case compares besides.
  """
  train, test = case.data()
  first = getattr(algorithm.init_server(KEY(0)), 'params', None)
  uploaded = [first] * case['clients']
  losses = {}
  for done in run_rounds(algorithm, train, case['participants'], how.run):
    number = done.number
    for i, update in done.updates.items():
      place = f'client{i}/round{number}'
      if how.trained:
        up = f'upload/{place}'
        has_upload = any(key.startswith(up) for key in case.arrays)
        case.check(up if has_upload else place, how.trained(update))
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
  views = how.views or stored_views(case, algorithm, done)
  check_views(case, algorithm, done, views)
  if 'final/logits' in case.digests:
    scores = evaluated(algorithm, [done.server.params] * case['clients'], test)
    scale = 1 if case.arrays['final/accuracy'].max() > 1 else 0.01
    case.check('final/logits', np.stack(scores.logits))
    case.check('final/accuracy', scale * scores.accuracy)
  return done


def stored_views(case, algorithm, done):
  """Return {prefix in the case: view} of the views that a case stores."""
  prefixes = {
    name.partition('/')[0] for name in case.digests if '/client0/logits' in name
  }
  given = done.server, done.clients[0], of(case.data()[0], 0), KEY(0)
  names = jax.eval_shape(algorithm.personalize, *given) if prefixes else {}
  views = {prefix: prefix for prefix in prefixes & {*names}}
  for view in ('finetuned', 'personal'):  # SuPerFed has neither
    if view in names:
      views |= dict.fromkeys(prefixes & {'personalized'}, view)
  return views


def run_rounds(
  algorithm: Algorithm, train, cohorts, run=stepwise
) -> Iterator[Round]:
  """Yield every round of some cohorts.

  Client after client and step after step in Python: see inputs.py. With
  run=jax.jit a client's round is one program: quicker from some hundred steps
  of a narrow network on.
  """
  server = algorithm.init_server(KEY(0))
  clients = [
    algorithm.init_client(server, of(train, i), KEY(0))
    for i in range(len(train.count))
  ]
  local_update = run(with_fits(algorithm.local_update))

  @jax.jit
  def finish(server, kept, uploads, ids):
    """Return the server after a round, and what its clients keep."""
    kept, uploads = (
      jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
      for rows in (kept, uploads)
    )
    senders = all_send(ids, train.count[ids], train)._replace(rng=KEY(0))
    server = algorithm.aggregate(server, uploads, senders)
    if algorithm.respond:
      kept = algorithm.respond(server, kept, uploads, senders)
    return server, [trees.gather(kept, row) for row in range(len(ids))]

  for number, cohort in enumerate(cohorts, start=1):
    updates = {}
    for i in cohort:
      down = algorithm.download(server, clients[i])
      results, fits = local_update(down, clients[i], of(train, i), KEY(0))
      updates[i] = Update(*results, fits)
    sent = ([update[field] for update in updates.values()] for field in (0, 1))
    server, kept = finish(server, *sent, jnp.array(cohort))
    for i, own in zip(cohort, kept, strict=True):
      clients[i] = own
    yield Round(number, updates, server, [*clients])


def check_losses(case, losses):
  """Compare {(round, client): loss} with a table of either orientation."""
  want = case.arrays.get('loss')
  if want is None:
    return
  absent = -1.0 if (want == -1).any() else np.nan
  sizes = case['clients'], case['rounds']
  clients_first = want.shape == sizes != want.T.shape
  got = np.full(want.shape, absent)
  for (number, i), loss in losses.items():
    got[(i, number - 1) if clients_first else (number - 1, i)] = loss
  case.check('loss', got)


def check_views(case, algorithm, done, names):
  """Compare views, {prefix of the case: view}, of all clients."""
  train, test = case.data()
  models = views_of(algorithm, done, train, names.values())
  for prefix, view in names.items():
    check_models(case, algorithm, models[view], test, prefix)


def views_of(algorithm, done, data, views, run=stepwise):
  """Return {view: the models of all clients}, personalised with this data.

  With run=jax.jit what a view does not need is not computed.
  """

  @run
  def personalize(server, client, data):
    models = algorithm.personalize(server, client, data, KEY(0))
    return {view: models[view] for view in views}

  models = [
    personalize(done.server, client, of(data, i))
    for i, client in enumerate(done.clients if views else ())
  ]
  return {view: [own[view] for own in models] for view in views}


class Scores(NamedTuple):
  """How one model for each client does on the tests of that client."""

  logits: list[np.ndarray]
  accuracy: np.ndarray  # in percent
  loss: np.ndarray


def evaluated(algorithm, models, test) -> Scores:
  """Return the scores of one model for each client."""
  table, rows = [], []
  for i, model in enumerate(models):
    x, y = map(np.asarray, client_rows(test, i))
    logits = np.asarray(algorithm.predict(model, x, jnp.ones(len(x))))
    own = np.take_along_axis(logits, y[:, None], 1)[:, 0]
    loss = np.log(np.exp(logits).sum(1)) - own
    table.append(logits)
    rows.append((100 * np.mean(logits.argmax(1) == y), loss.mean()))
  return Scores(table, *np.transpose(rows))


def check_models(case, algorithm, models, test, prefix):
  """Compare logits, accuracies and losses of one model for each client."""
  scores = evaluated(algorithm, models, test)
  for i, logits in enumerate(scores.logits):
    case.check(f'{prefix}/client{i}/logits', logits)
  case.check(f'{prefix}/accuracy', scores.accuracy)
  case.check(f'{prefix}/loss', scores.loss)
