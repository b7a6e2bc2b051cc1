"""FedBN (Li et al. 2021): normalisation layers stay with their clients.

  w_i <- SGD_tau((g, n_i); data of client i)    for i in the cohort S
  g   <- sum_i a_i g_i / sum_i a_i              a_i = 1 or n_i

n are the scale and bias of all normalisation layers, g all other leaves. A
client keeps its n_i; before its first round it has the initial one.

New client: it trains for one round from the initial n, of which nothing is
sent, and keeps its n of that round.

Differs from the paper: there all clients take part in every round. BatchNorm
normalises by the batch in training and in evaluation; in the paper it has
running statistics, the client's own, too: norm_statistics 'running'.
"""

from fedjax_pfl.client import global_model
from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import NORM, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Task

HParams = global_model.HParams
FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2102.07623'
FEDAVG_EQUIVALENT = None  # never
PRIVATE_LEAVES = (NORM,)


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedBN."""
  if not any(trees.leaf_names(trees.select(task.is_norm, task.is_norm))):
    raise bad_input(
      'model',
      got='a model without normalisation layers',
      expected='BatchNorm, GroupNorm or LayerNorm with FedBN: without them it '
      'is FedAvg',
      choices=['model=convnet4', 'model=mobilenet', 'model=resnet18'],
    )
  shared = trees.invert(task.is_norm)
  algorithm = global_model.averaging_of_part(task, hp, shared)
  return (Stage('fedbn', hp.train.rounds, algorithm),)
