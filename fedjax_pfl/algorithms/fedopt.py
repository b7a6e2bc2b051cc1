"""FedOpt (Reddi et al. 2021): the server optimises, with FedAvg's clients.

  w_i  <- SGD_tau(w; data of client i)          for i in the cohort S
  D    <- sum_i a_i w_i / sum_i a_i - w         a_i = 1 or n_i
  sgd      m <- beta_1 m + D;                   w <- w + eta_s m
  adagrad  v <- v + D^2
  adam     v <- beta_2 v + (1 - beta_2) D^2
  yogi     v <- v - (1 - beta_2) D^2 sign(v - D^2)
           m <- beta_1 m + (1 - beta_1) D
           w <- w + eta_s m / (sqrt(v) + tau)

That is FedAvgM (Hsu et al. 2019) with 'sgd', and FedAdagrad, FedAdam and
FedYogi; m begins at 0, v at tau^2. Any other method gets them by the settings
`server_optimizer` and `server_learning_rate` (around/server_optimiser.py).

New client: it has the global model, and fine-tunes it as all others do.

Differs from the paper: local SGD has momentum. The default of beta_2 is 0.999
in the public code, and 0.99 in the paper and here. optax.adam would correct
both moments for their beginning, which the paper does not.
"""

from fedjax_pfl.around.server_optimiser import (
  SERVER_OPTIMISERS,
  ServerOptimiser,
  optimised,
)
from fedjax_pfl.client import global_model
from fedjax_pfl.core import rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Task


class HParams(global_model.HParams):
  optimizer: str = field(
    'adam', rules.one_of(SERVER_OPTIMISERS, 'an optimiser of the server')
  )
  learning_rate: float = field(0.01, rules.above(0), traced=True)  # eta_s
  beta_1: float = field(0.9, rules.momentum(), traced=True)
  beta_2: float = field(0.99, rules.momentum(), traced=True)
  tau: float = field(1e-3, rules.above(0), traced=True)


PARTS = {
  'beta_2': ('optimizer', 'adam', 'yogi'),
  'tau': ('optimizer', 'adam', 'yogi', 'adagrad'),
}
FAMILY, PAPER = 'server optimisers', 'arxiv.org/abs/2003.00295'
FEDAVG_EQUIVALENT = {'optimizer': 'sgd', 'learning_rate': 1.0, 'beta_1': 0.0}
PRIVATE_LEAVES = ()


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedOpt."""
  averaging = global_model.federated_averaging(task, hp)
  stage = Stage('fedopt', hp.train.rounds, averaging)
  optimiser = ServerOptimiser(
    hp.optimizer, hp.learning_rate, hp.beta_1, hp.beta_2, hp.tau
  )
  return (optimised(stage, optimiser),)
