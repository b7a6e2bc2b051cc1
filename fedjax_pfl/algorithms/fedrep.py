"""FedRep (Collins et al. 2021): a client trains its head, then the common body.

  h_i <- SGD(h_i; data of client i, body b)     for head_epochs (tau)
  b_i <- SGD(b; data of client i, head h_i)     for body_epochs (1)
  b   <- sum_i a_i b_i / sum_i a_i              a_i = 1 or n_i

Both phases are one fit with one optimiser, as in the FedBABU paper's public
code: m <- beta m + g holds for all leaves in all steps, and only the learning
rate moves from the head to the body,

  w <- w - eta gate(step, part) m,

so that the body begins its phase with the momentum of the head's. A client
keeps its head h_i; before its first round it has the common initial head.

For evaluation every client repeats both phases from (b, h_i), at the learning
rate of the clock, with tau_f epochs for the head. Of `finetune`, its epochs
(tau_f), batch size and shuffling count; learning rate, momentum and part are
those of the rounds.

protocol 'released': as in the public code of the FedBABU paper, which made the
printed table, tau_f is tau.

New client: it fits its head, which begins as the initial one, to b in one
round, of which nothing is sent; for evaluation it repeats both phases.

Differs from the paper: tau epochs on the head and one on the body, momentum
0.5 and the weights a_i = 1 by default are those of the FedBABU paper's runs.
"""

import jax
import optax

from fedjax_pfl.client import global_model, personalization
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Task
from fedjax_pfl.data.batching import steps_in_time, steps_of_epoch


class HParams(global_model.HParams):
  head_epochs: int | None = field(  # of a round; None: train.epochs (tau)
    None, rules.count('epochs', 'a fraction', 0).or_none('train.epochs')
  )
  body_epochs: int = field(
    1, rules.count('epochs', '0: the body would never learn')
  )
  momentum: float = field(  # instead of train.momentum; not in the paper
    0.5, rules.momentum(), traced=True
  )
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2102.07078'
FEDAVG_EQUIVALENT = None  # never; with head_epochs = 0 it is FedBABU
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedRep."""
  batching = hp.train.batching(task)
  of_views = batching._replace(
    size=hp.finetune.batch_size, shuffle=hp.finetune.shuffle
  )
  of_round = hp.train.epochs if hp.head_epochs is None else hp.head_epochs
  tau_f = tuple(sorted({*hp.finetune.epochs} - {0}))
  if hp.protocol == 'released':
    tau_f = (of_round,)

  def fit(*args):
    return fit_phases(task, hp, *args, of_round, batching)

  def views(server, client, data, rng):
    params = trees.combine(client, server.params)
    clock = server.round
    models = [
      fit_phases(task, hp, params, data, rng, clock, epochs, of_views)[0]
      for epochs in tau_f
    ]
    names = personalization.names_of(tau_f)
    return {'initial': params, **dict(zip(names, models, strict=True))}

  body = trees.invert(task.is_head)
  algorithm = global_model.averaging_of_part(task, hp, body, fit)._replace(
    personalize=views
  )
  return (Stage('fedrep', hp.train.rounds, algorithm),)


def fit_phases(task, hp, params, data, rng, clock, num_epochs, batching):
  """Return params after num_epochs of the head and body_epochs of the body."""
  batching = batching._replace(epochs=num_epochs + hp.body_epochs)
  eta = hp.train.learning_rate(clock)
  first = num_epochs * steps_of_epoch(data, batching)  # [] steps of the head
  first = steps_in_time(data, batching, first)
  gates = {
    'head': optax.scale_by_schedule(lambda step: eta * (step < first)),
    'body': optax.scale_by_schedule(lambda step: eta * (step >= first)),
  }
  parts = jax.tree.map(lambda head: 'head' if head else 'body', task.is_head)
  unit = hp.train._replace(
    learning_rate=lambda clock: 1.0, momentum=hp.momentum
  )
  # The gates come after the momentum: its buffer takes every gradient.
  tx = optax.chain(unit.sgd(clock), optax.partition(gates, parts))
  return unit.fit(task, params, data, rng, clock, tx=tx, batching=batching)
