"""FedRep (Collins et al. 2021): first one's own head, then the common body.

  h_i <- SGD(h_i; data of client i, body b)     for head_epochs (tau)
  b_i <- SGD(b; data of client i, head h_i)     for body_epochs (1)
  b   <- sum_i a_i b_i / sum_i a_i              a_i = 1 or n_i

Both phases are one fit with one optimiser, as in the FedBABU paper's public
code: m <- beta m + g holds for all leaves in all steps, and only the learning
rate moves from the head to the body,

  w <- w - eta gate(step, part) m,

so that the body begins its phase with the momentum of the head's. The head
never leaves its client; one that never took part has the common initial head.

For the test every client repeats both phases from (body, own head), at the
learning rate of the clock; the phase of the head has as many epochs as
fine-tuning ('paper': tau_f) or as in a round ('released', the public code,
which made the printed table). Of `finetune`, its epochs, batch size and
shuffling count; its learning rate, momentum and part are those of the rounds.

Differs from the paper: tau epochs on the head and one on the body, momentum
0.5 and the weights a_i = 1 by default are those of the FedBABU paper's runs.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage, check_protocol
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData, Key, Params, Task
from fedjax_pfl.data.batching import Batching, steps_of_epoch


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  head_epochs: int | None = None  # of a round; None: train.epochs (tau)
  body_epochs: int = 1
  momentum: float = 0.5  # in the place of train.momentum; not in the paper
  protocol: str = 'paper'  # or 'released'


FEDAVG_EQUIVALENT = None  # never; with head_epochs = 0 it is FedBABU
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


class Server(NamedTuple):
  round: Array
  params: Params  # the common body and the initial head


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedRep."""
  check_hyperparameters(hp)
  head, body = task.is_head, trees.invert(task.is_head)
  batching = hp.train.batching(task)

  def local_update(down, client, data, rng):
    params, info = fit_phases(
      task,
      hp,
      trees.combine(client, down.params),
      data,
      rng,
      down.round,
      round_epochs(hp),
      batching,
    )
    upload = trees.select(params, body)
    return trees.select(params, head), upload, info.metrics()

  def aggregate(server, bodies, counts):
    mean = trees.weighted_mean(bodies, hp.train.weights(counts))
    return Server(server.round + 1, trees.combine(mean, server.params))

  algorithm = Algorithm(
    init_server=lambda rng: Server(jnp.zeros((), jnp.int32), task.init(rng)),
    init_client=lambda server, data, rng: trees.select(server.params, head),
    download=lambda server, client: Server(
      server.round, trees.select(server.params, body)
    ),
    local_update=local_update,
    aggregate=aggregate,
    personalize=lambda server, client, data, rng: views(
      task, hp, trees.combine(client, server.params), data, rng, server.round
    ),
    predict=personalization.make_predict(task),
  )
  return (Stage('fedrep', hp.train.rounds, algorithm),)


def views(
  task: Task,
  hp: HParams,
  params: Params,
  data: ClientData,
  rng: Key,
  clock: Array,
) -> dict[str, Params]:
  """Return the body under the client's own head, before and after a fit."""
  batching = hp.train.batching(task)._replace(
    size=hp.finetune.batch_size, shuffle=hp.finetune.shuffle
  )
  stops = tuple(sorted(set(hp.finetune.epochs)))
  if hp.protocol == 'released':
    stops = (round_epochs(hp),)
  models = [
    fit_phases(task, hp, params, data, rng, clock, stop, batching)[0]
    for stop in stops
  ]
  names = personalization.names_of(stops)
  return {'initial': params, **dict(zip(names, models, strict=True))}


def round_epochs(hp: HParams) -> int:
  """Return the epochs of the head in a round."""
  return hp.train.epochs if hp.head_epochs is None else hp.head_epochs


def fit_phases(
  task: Task,
  hp: HParams,
  params: Params,
  data: ClientData,
  rng: Key,
  clock: Array,
  head_epochs: int,
  batching: Batching,
) -> tuple[Params, local_training.FitInfo]:
  """Return params after the epochs of the head and those of the body."""
  batching = batching._replace(epochs=head_epochs + hp.body_epochs)
  eta = hp.train.learning_rate(clock)
  first = head_epochs * steps_of_epoch(data, batching)  # [] steps of the head
  gates = {
    'head': optax.scale_by_schedule(lambda step: eta * (step < first)),
    'body': optax.scale_by_schedule(lambda step: eta * (step >= first)),
  }
  parts = jax.tree.map(lambda head: 'head' if head else 'body', task.is_head)
  unit = hp.train._replace(
    learning_rate=lambda clock: 1.0, momentum=hp.momentum
  )
  return local_training.fit(
    task.loss,
    params,
    data,
    rng,
    # The gates are behind the momentum: a closed one starves no buffer.
    tx=optax.chain(unit.sgd(clock), optax.partition(gates, parts)),
    batching=batching,
  )


def check_hyperparameters(hp: HParams) -> None:
  """Refuse a protocol, numbers of epochs or a momentum that cannot be."""
  check_protocol(hp.protocol)
  epochs = {
    'head_epochs': (round_epochs(hp), 0),
    'body_epochs': (hp.body_epochs, 1),
  }
  for name, (got, least) in epochs.items():
    if not isinstance(got, int) or got < least:
      raise bad_input(
        f'hp.{name}',
        got=got,
        expected=f'a whole number of epochs, {least} or more',
        cause='a fraction, or a body that would never learn',
      )
  if not 0 <= hp.momentum < 1:
    raise bad_input(
      'hp.momentum',
      got=hp.momentum,
      expected='a momentum from 0 to below 1',
      cause='a sign, or a percentage',
    )
