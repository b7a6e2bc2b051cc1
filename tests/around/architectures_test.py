"""Clients of different architectures in the rounds of one method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
  CLASSES,
  COHORT,
  COUNTS,
  KEY,
  assert_close,
  build,
  client_of,
  every_method,
  make_data,
  make_task,
  play,
  refused,
)

from fedjax_pfl.around.architectures import message_forms, mixed
from fedjax_pfl.core import trees
from fedjax_pfl.federated.cohort import (
  all_send,
  by_size,
  client_key,
  server_update,
)
from fedjax_pfl.federated.placement import OnHost

pytestmark = pytest.mark.usefixtures('quick_compiler', 'float64')
METHODS = 'fd', 'fedgen', 'fedgh', 'fedproto', 'fedtgp'
METHODS += 'lg_fedavg', 'local_only'
HP = {'lg_fedavg': {'train_fedavg': False}, 'fedgen': {'shared': 'head'}}
OF_CLIENT = np.arange(len(COUNTS)) % 2
DATA = make_data()


def deeper(width=5):
  """Return a task of another architecture with as many features."""
  return make_task(width, deep=True)


def stages_of(name, *tasks):
  return [build(name, task, **HP.get(name, {}))[-1] for task in tasks]


def mixed_stage(name, *tasks):
  stages, names = stages_of(name, *tasks), ('shallow', 'deep')
  forms = message_forms(stages, names, DATA, ())
  return mixed(stages, OF_CLIENT, forms)


@every_method(1, METHODS)
def test_equal_architectures_give_the_rounds_of_one(name):
  alone = stages_of(name, make_task())
  server, clients, _ = play(alone, DATA, cohort=COHORT)
  both = mixed_stage(name, make_task(), make_task())
  servers, rows, _ = play([both], DATA, cohort=COHORT)
  for own in servers.of_groups:
    assert_close(own, server)
  for group, own in enumerate(rows.of_groups):
    at = np.flatnonzero(group == OF_CLIENT)
    assert_close(trees.gather(own, at), trees.gather(clients, at))


@every_method(2, METHODS)
def test_every_group_aggregates_what_all_send(name):
  stages = stages_of(name, make_task(), deeper())
  stage = mixed_stage(name, make_task(), deeper())
  server, clients, _ = play([stage], DATA, cohort=COHORT, rounds=1)
  start, rows, _ = play([stage], DATA, cohort=COHORT, rounds=0)
  cohort, sent = jnp.array(COHORT), []
  ids = cohort[by_size(cohort, DATA.count)]
  for client in ids.tolist():
    group = OF_CLIENT[client]
    method, above = stages[group].algorithm, start.of_groups[group]
    own = trees.gather(rows.of_groups[group], client)
    alone = client_of(DATA, client)
    down, rng = method.download(above, own), client_key(KEY(2), 0, client)
    own, up, _ = jax.jit(method.local_update)(down, own, alone, rng)
    found = trees.gather(clients.of_groups[group], client)
    assert_close(found, own)
    sent.append(up)
  leaves = zip(*map(jax.tree.leaves, sent), strict=True)
  leaves = [jnp.stack(rows) for rows in leaves]
  senders = all_send(ids, DATA.count[ids], DATA)
  for group, (one, above) in enumerate(
    zip(stages, start.of_groups, strict=True)
  ):
    up = jax.tree.structure(sent[group]).unflatten(leaves)
    want = server_update(one.algorithm, above, up, senders, KEY(2))
    assert_close(server.of_groups[group], want)


def test_a_client_predicts_by_its_own_architecture():
  stage = mixed_stage('fedproto', make_task(), deeper())
  server, clients, _ = play([stage], DATA, cohort=COHORT)
  method, x = stage.algorithm, DATA.x[:4].astype(float)
  for client, task in enumerate([make_task(), deeper()]):
    own = trees.gather(clients, client)
    alone = client_of(DATA, client)
    view = method.personalize(server, own, alone, KEY(3))['personal']
    logits = method.predict(view, x, jnp.ones(4))
    params = own.of_groups[client].params
    assert logits.shape == (4, CLASSES)
    assert_close(logits, task.logits(params, x, jnp.ones(4)))


def test_messages_of_whole_models_are_refused():
  for name in METHODS:  # what all send has one form
    message_forms(stages_of(name, make_task(), deeper()), 'ab', DATA, ())
  for name, tasks in {
    'fedavg': (make_task(), deeper()),
    'fedproto': (make_task(), deeper(4)),
  }.items():
    call = message_forms, stages_of(name, *tasks), 'ab', DATA, ['fedproto']
    assert 'algorithm=fedproto' in refused(*call)


def test_clients_on_the_host_have_the_same_rounds():
  stage, host = mixed_stage('fedproto', make_task(), deeper()), OnHost()
  states = host.begin(stage, DATA, KEY(1))
  assert states[1].group.tolist() == OF_CLIENT.tolist()
