"""FedPer (Arivazhagan et al. 2019): a common body, and a head for each client.

  (b_i, h_i) <- SGD_tau((b, h_i); data of client i)   for i in the cohort S
  b          <- sum_i a_i b_i / sum_i a_i             a_i = 1 or n_i

Body and head are trained together. A client keeps its head h_i between the
rounds in which it takes part; before its first one it has the initial head,
which is the same for all clients.

protocol 'released': as in the public code of the FedBABU paper clients keep no
head. Local training, fine-tuning and evaluation begin with the initial head h.

New client: it trains (b, h) for one round, of which nothing is sent, and keeps
its head h_i. With protocol 'released' it has b and h, as all others.

Differs from the paper: fine-tuning of body and head before evaluation, momentum
0.9 with a buffer that starts anew in every round, and weights a_i that are 1 by
default, as in all runs of the FedBABU paper.
"""

import jax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Task


class HParams(global_model.HParams):
  shared: str = 'body'  # 'full' is FedAvg
  protocol: str = field('paper', rules.protocol())  # or 'released'


FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/1912.00818'
FEDAVG_EQUIVALENT = {'shared': 'full'}
PRIVATE_LEAVES = ('head',)  # neither uploaded nor averaged


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedPer."""
  body, private = trees.part_mask(task, hp.shared, 'hp.shared'), None
  if hp.protocol == 'released':  # a client's head is forgotten
    private = jax.tree.map(lambda _: False, body)
  algorithm = global_model.averaging_of_part(task, hp, body, private=private)
  return (Stage('fedper', hp.train.rounds, algorithm),)
