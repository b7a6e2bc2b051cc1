"""Partial (Pillutla et al. 2022): FedAlt and FedSim, with parts by their paths.

  v_i  <- SGD(v_i; data of client i, u)         i in the cohort, own epochs
  u_i  <- SGD_tau(u; data of client i, v_i)
  u    <- sum_i a_i u_i / sum_i a_i             a_i = 1 or n_i

Leaves whose path matches a pattern of `personal` (of the shell: 'head/*',
'*/bias', 'adapter*') are v and stay with their client; all others are u. Before
its first round a client has the initial v. That is FedAlt, order 'alternating';
with 'simultaneous', FedSim, both parts take tau epochs together.

With 'head/*', FedSim is FedPer; with all but 'head/*' it is LG-FedAvg without
the FedAvg before it; FedAlt with 'head/*' is FedRep without momentum.

New client: v_i is trained for one round, of which nothing is sent.

Differs from the paper: the weights a_i are 1 by default, n_i there; both parts
have one learning rate. Its server may take steps: `server_optimizer`.
"""

from fnmatch import fnmatchcase
from typing import NamedTuple

import jax

from fedjax_pfl.client import (
  global_model,
  local_training,
  optimisers,
  personalization,
)
from fedjax_pfl.core import rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Mask, Task


class HParams(NamedTuple):
  train: local_training.LocalTraining = local_training.LocalTraining()
  finetune: personalization.Finetuning = personalization.Finetuning()
  personal: tuple[str, ...] = ('head/*',)
  order: str = 'alternating'  # FedAlt; or 'simultaneous': FedSim
  personal_epochs: int = 1  # of v in a round of FedAlt


RULES = {
  'order': rules.one_of(('alternating', 'simultaneous'), 'an order of parts'),
  'personal_epochs': rules.count('epochs', '0: v would never learn'),
}
FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2204.03809'
FEDAVG_EQUIVALENT = None  # never: some leaf is personal
PRIVATE_LEAVES = ('head',)  # by default


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAlt or FedSim."""
  rules.check(hp, RULES)
  personal = mask_of(task, hp.personal)
  shared = trees.invert(personal)

  def alternate(params, data, rng, clock):
    first = hp.train._replace(epochs=hp.personal_epochs)
    own, both = jax.random.split(rng)
    tx = optimisers.freeze_except(first.sgd(clock), personal)
    params, info = first.fit(task, params, data, own, clock, tx=tx)
    tx = optimisers.freeze_except(hp.train.sgd(clock), shared)
    params, last = hp.train.fit(task, params, data, both, clock, tx=tx)
    return params, last._replace(num_steps=info.num_steps + last.num_steps)

  fit = alternate if hp.order == 'alternating' else None
  algorithm = global_model.averaging_of_part(task, hp, shared, fit)
  return (Stage('partial', hp.train.rounds, algorithm),)


def mask_of(task: Task, patterns: tuple[str, ...]) -> Mask:
  """Return the mask of the leaves that match; some, and not all."""
  return trees.path_mask(
    task.is_head,
    lambda name: any(fnmatchcase(name, pattern) for pattern in patterns),
    'hp.personal',
  )
