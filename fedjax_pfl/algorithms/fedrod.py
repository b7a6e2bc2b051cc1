"""FedRoD (Chen and Chao 2022): a balanced head, and one for the client.

  (b_i, g_i) <- SGD_tau(L^BSM(g(f)))              from (b, g), i in the cohort S
  p_i        <- SGD_tau(L(sg(g(f)) + p_i(sg(f))))     in the same steps
  (b, g)     <- sum_i a_i (b_i, g_i) / sum_i a_i      a_i = 1 or n_i

  L^BSM = cross-entropy of z_k + log n_ik    f = features, z = g(f) the logits

A client keeps its head p_i, and g(f) + p_i(f) are its logits in the view
`personal`; those of the server's model are in `initial`. No gradient passes sg.
A class that the client has no example of has probability 0 in L^BSM. p_i begins
as the initial g.

New client: p_i begins as g is by then, and learns for one round, of which
nothing is sent.

Differs from the paper: the weights a_i are 1 by default; p_i is a linear head,
not one that a hypernetwork makes. The authors published no code; p_i begins as
g as in PFLlib, which is the same otherwise.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.data.client_data import label_counts

HParams = global_model.HParams
FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2107.00778'
FEDAVG_EQUIVALENT = None  # never, but where all n_ik are equal
NEEDS_CLASSES = True
ABSENT = -1e9  # log 0; finite, as padding may have any label
PRIVATE_LEAVES = ('personal_head',)


class Client(NamedTuple):
  personal_head: Params  # p_i, in the structure of the model


class Both(NamedTuple):
  """The generic model, and the personal head beside it: a view, and a fit."""

  params: Params
  personal_head: Params
  rule = 'logits = network(x) + the head of personal_head/ on f'


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedRoD."""
  rules.check_cross_entropy(task, 'FedRoD')

  def local_update(down, client, data, rng):
    counts = label_counts(data, task.num_classes)
    some = jnp.maximum(counts, 1).astype(float)
    prior = jnp.where(counts > 0, jnp.log(some), ABSENT)

    def loss(both, batch, rng):  # gradients of both terms share no leaf
      f, logits = task.train_outputs(both.params, batch, rng)
      balanced = losses.masked_cross_entropy(logits + prior, batch)
      change = task.classify(both.personal_head, lax.stop_gradient(f))
      personal = losses.masked_cross_entropy(
        lax.stop_gradient(logits) + change, batch
      )
      reports = {'balanced_losses': balanced, 'personal_losses': personal}
      return balanced + personal, reports

    start = Both(down.params, client.personal_head)
    both, info = hp.train.fit(task, start, data, rng, down.round, loss)
    return Client(both.personal_head), both.params, info.metrics()

  def predict(view, x, mask):
    if not isinstance(view, Both):
      return task.logits(view, x, mask)
    f = task.features(view.params, x, mask)
    generic = task.classify(view.params, f)
    return generic + task.classify(view.personal_head, f)

  algorithm = global_model.federated_averaging(task, hp, local_update)
  algorithm = algorithm._replace(
    init_client=lambda server, data, rng: Client(
      trees.select(server.params, task.is_head)
    ),
    personalize=lambda server, client, data, rng: {
      'initial': server.params,
      'personal': Both(server.params, client.personal_head),
    },
    predict=predict,
  )
  return (Stage('fedrod', hp.train.rounds, algorithm),)
