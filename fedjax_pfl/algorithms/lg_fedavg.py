"""LG-FedAvg (Liang et al. 2020): a body for each client, and a common head.

  b, h     <- FedAvg                            first stage, or another run
  b_i      <- b                                 for all clients i
  b_i, h_i <- SGD_tau(b_i, h; data of client i) for i in the cohort S, eta fixed
  h        <- sum_i a_i h_i / sum_i a_i         a_i = 1 or n_i

Momentum begins anew in every round. The second stage has a quarter of the
first one's rounds.

protocol 'released': the public code of the FedBABU paper, whose tables have

  (b_i*, h_i*)  the model (b_i, h) of client i, without fine-tuning, in the
                round of its best TEST accuracy: the start of the second stage
                is one of them, and the later of equal ones is kept
  h*            <- sum_i h_i* / K               over all K clients
  printed       accuracy of (b_i*, h*) on the tests of client i

after the last round; stored as `test_best/initial/finished`. Training is the
same.

New client: b_i begins as FedAvg's b and learns under the common head for one
round, of which nothing is sent.

Differs from the paper: begins with FedAvg's model, as in the FedBABU paper,
whose text fine-tunes body and head afterwards (view 'finetuned'). 'released'
begins with FedAvg's last model, the public code with that of its best TEST
accuracy.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Mask, Params, Task


class HParams(global_model.HParams):
  learning_rate: float = field(  # eta of the second stage, all its rounds
    1e-3, rules.above(0), traced=True
  )
  train_fedavg: bool = True  # False: begin with the model of another run
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2001.01523'
FEDAVG_EQUIVALENT = {'train_fedavg': True}
FEDAVG_WHERE = 'in its first stage'
PRIVATE_LEAVES = ('body',)  # in the second
ACROSS_MODELS = 'hp.train_fedavg=False'
SAME_CLIENTS_AS_START = True


def check_start(hp: HParams, start: str) -> None:
  """Refuse to begin without a FedAvg model, and with two of them."""
  if bool(start) == hp.train_fedavg:
    raise bad_input(
      'init_from',
      got=start,
      expected='the directory of a FedAvg run, or hp.train_fedavg=True, which '
      'trains that model first; one of the two',
      choices=[
        'init_from=RUN and hp.train_fedavg=False',
        'hp.train_fedavg=True',
      ],
    )


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return FedAvg and then LG-FedAvg, or the latter alone."""
  rate = optax.constant_schedule(hp.learning_rate)
  slow = hp._replace(train=hp.train._replace(learning_rate=rate))
  body = trees.invert(task.is_head)
  last = Stage(
    'lg_fedavg',
    -(-hp.train.rounds // 4),
    global_model.averaging_of_part(task, slow, shared=task.is_head),
    initialize=lambda server, clients, data: (
      server,
      trees.repeated(trees.select(server.params, body), data.count.shape[0]),
    ),
  )
  if hp.protocol == 'released':
    finish = partial(with_mean_part, shared=task.is_head)
    last = last._replace(keep_best=finish)
  if not hp.train_fedavg:
    return (last,)
  all_parts = trees.part_mask(task, 'full')
  first = global_model.averaging_of_part(task, hp, shared=all_parts)
  return Stage('fedavg', hp.train.rounds, first), last


def with_mean_part(models: Params, shared: Mask) -> Params:
  """Return the models [K, ...], in each the mean of their shared parts."""
  num_clients = len(jax.tree.leaves(models)[0])
  part = trees.select(models, shared)
  mean = trees.weighted_mean(part, jnp.ones(num_clients))
  return trees.combine(trees.repeated(mean, num_clients), models)
