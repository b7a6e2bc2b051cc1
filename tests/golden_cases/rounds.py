"""Whole rounds: run them, and compare what all methods have in common."""

from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import load
from fedjax_pfl.client import local_training
from fedjax_pfl.core.algorithm import Algorithm
from fedjax_pfl.federated.cohort import all_send
from fedjax_pfl.federated.rounds import init_states, make_round
from golden_cases.case_inputs import (
  KEY,
  case_task,
  client_rows,
  clients_data,
  finetuning_settings,
  of,
  training,
  upload_name,
)
from golden_cases.python_loops import stepwise


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


def check_fedavg(case):
  check_method(case, 'fedavg')


def check_head_lr_ratio(case):
  check_method(case, 'fedavg', head_lr_ratio=case['head_lr_ratio'])


def check_fedavg_ragged(case):
  """Check the rounds of the engine, too: one compiled program a round."""
  check_method(case, 'fedavg')
  if training(case).aggregation == 'uniform':  # one of them is enough
    return
  module = load('fedavg')
  hp = module.HParams(training(case), finetuning_settings(case))
  algorithm = module.build(case_task(case), hp)[0].algorithm
  train, _ = clients_data(case)
  states = init_states(algorithm, train, KEY(0))
  round_fn = make_round(algorithm)
  for number, cohort in enumerate(case['participants'], start=1):
    *states, _ = round_fn(*states, jnp.array(cohort), train, KEY(0))
    case.check_tree(f'global/round{number}', states[0].params)


def check_fedbabu(case):
  check_method(case, 'fedbabu')


def check_method(case, name, **hp):
  """Check a method of which cases have no more than its global model."""
  module = load(name)
  hp = {'train': training(case), 'finetune': finetuning_settings(case), **hp}
  algorithm = module.build(case_task(case), module.HParams(**hp))[0].algorithm
  check_global_model(case, algorithm, check_steps)


def check_global_model(case, algorithm, check_steps_fn):
  """Check rounds, the global model after each, and the last evaluation."""
  train, test = clients_data(case)
  for done in checked_rounds(case, algorithm, train, check_steps_fn):
    case.check_tree(f'global/round{done.number}', done.server.params)
  if 'personalization' in case.settings:
    names = {'initial': 'initial', 'personalized': 'finetuned'}
    check_views(case, algorithm, done, train, test, names)
  else:
    check_final(case, algorithm, done.server, test)
  case.finish(inputs=('train_mask', 'test_mask'))


def checked_rounds(
  case, algorithm: Algorithm, train, check_steps_fn
) -> Iterator[Round]:
  """Yield every round of a method with one fit; compare models and losses.

  The last ones are compared when all rounds were taken.
  """
  losses = {}
  for done in run_rounds(case, algorithm, train):
    for i, update in done.updates.items():
      ((params, info),) = update.fits
      check_trained(case, i, done.number, params)
      check_steps_fn(case, i, done.number, info)
      losses[done.number, i] = update.metrics['loss']
    yield done
  check_losses(case, losses)


def run_rounds(
  case, algorithm: Algorithm, train, run=stepwise
) -> Iterator[Round]:
  """Yield every round of the case.

  Client after client and step after step in Python: see python_loops.py. With
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


def check_trained(case, i, number, params):
  """Compare the model after local training, before aggregation."""
  case.check_tree(upload_name(case, i, number), params)


def check_stored(case, prefix, tree):
  """Compare a model, holes aside, if the case has it."""
  if any(key.startswith(f'{prefix}/') for key in case.arrays):
    leaves = {
      name: {part: leaf for part, leaf in layer.items() if leaf is not None}
      for name, layer in tree.items()
    }
    case.check_tree(prefix, leaves)


def check_steps(case, i, number, info, losses=None):
  """Compare the losses before every step: the fit's own, or others."""
  losses = info.losses if losses is None else losses
  case.check(
    f'step_loss/client{i}/round{number}', losses[: int(info.num_steps)]
  )


def check_losses(case, losses):
  """Compare {(round, client): loss} with a table of either orientation."""
  want = case.arrays['loss']
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


def check_models(case, algorithm, models, test, prefix):
  """Compare logits, accuracies and losses of one model for each client."""
  scores = [
    evaluated(algorithm, model, test, i) for i, model in enumerate(models)
  ]
  for i, (logits, _, _) in enumerate(scores):
    case.check(f'{prefix}/client{i}/logits', logits)
  case.check(f'{prefix}/accuracy', [accuracy for _, accuracy, _ in scores])
  case.check(f'{prefix}/loss', [loss for _, _, loss in scores])


def evaluated(algorithm, model, test, i):
  """Return logits, accuracy in percent and loss on the tests of client i."""
  x, y = client_rows(test, i)
  logits = np.asarray(algorithm.predict(model, x, jnp.ones(len(x))))
  y = np.asarray(y)
  own = np.take_along_axis(logits, y[:, None], 1)[:, 0]
  loss = np.log(np.exp(logits).sum(1)) - own
  return logits, 100 * np.mean(logits.argmax(1) == y), loss.mean()


def check_final(case, algorithm, server, test):
  scores = [
    evaluated(algorithm, server.params, test, i) for i in range(case['clients'])
  ]
  case.check('final/logits', np.stack([logits for logits, _, _ in scores]))
  scale = 1 if case.arrays['final/accuracy'].max() > 1 else 0.01
  case.check('final/accuracy', [scale * hits for _, hits, _ in scores])


CHECKS = {
  'fedavg': check_fedavg,
  'fedavg on clients of different size': check_fedavg_ragged,
  'fedavg with a smaller head learning rate': check_head_lr_ratio,
  'fedbabu': check_fedbabu,
  'fedbabu on clients of different size': check_fedbabu,
}
