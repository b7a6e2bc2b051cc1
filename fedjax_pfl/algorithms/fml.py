"""FML (Shen et al. 2020): an own model and a shared one teach each other.

  w_i <- SGD_tau(alpha L_i(w_i) + (1 - alpha) KL(sg(p_m) || p_w)), from w_i
  m_i <- SGD_tau(beta L_i(m_i) + (1 - beta) KL(sg(p_w) || p_m))    from m
  m   <- sum_i a_i m_i / sum_i a_i       i in the cohort S, a_i = 1 or n_i

Both take their steps together, on the same batches; p_w and p_m are their
softmax there, KL the mean over examples. No gradient passes sg. A client keeps
its model w_i; all begin as the same, m as another one. The view `personal` is
w_i, the view `initial` is m.

m, the "meme", has the architecture `student`, one of the list of models; '': as
w_i. No message has the shape of w_i.

New client: w_i begins as that of all others and learns beside m for one round,
of which nothing is sent.

Differs from the paper: momentum, of both models, begins anew in every round; in
the authors' code that of w_i goes on, and the lines of main.py that send and
average m are comments. HtFLlib means KL over the classes, too, and clips
gradients, as clip_norm=10 does.
"""

from typing import NamedTuple

import jax
import optax

from fedjax_pfl.client import global_model
from fedjax_pfl.client.student import first_key, with_student
from fedjax_pfl.core import losses, rules
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Params, Task
from fedjax_pfl.models.registry import student_of

SHARE = rules.share('a weight of KL, not of the cross-entropy beside it')


class HParams(global_model.HParams):
  alpha: float = field(0.5, SHARE, traced=True)
  beta: float = field(0.5, SHARE, traced=True)
  student: str = ''  # the architecture of m; '': that of w_i


FAMILY, PAPER = 'distillation', 'arxiv.org/abs/2006.16765'
FEDAVG_EQUIVALENT = {'beta': 1.0}
NEEDS_CLASSES = True
FEDAVG_WHERE = 'its shared model'
PRIVATE_LEAVES = ('own',)
ACROSS_MODELS = 'hp.student=NAME, a model of all'


class Client(NamedTuple):
  own: Params  # w_i


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FML."""
  meme_task = student_of(task, hp.student)

  def init_client(server, data, rng):
    return Client(task.init(first_key(server)))

  def local_update(down, client, data, rng):
    def loss(models, batch, rng):
      model, meme = models['own'], models['meme']
      second = jax.random.fold_in(rng, 1)
      w = task.train_outputs(model, batch, second).logits
      m = meme_task.train_outputs(meme, batch, rng).logits
      cross_entropies = [
        losses.batch_loss(z, batch, task.example_loss) for z in (w, m)
      ]
      from_meme = losses.divergence(m, w, batch)
      from_own = losses.divergence(w, m, batch)
      of_own = hp.alpha * cross_entropies[0] + (1 - hp.alpha) * from_meme
      of_meme = hp.beta * cross_entropies[1] + (1 - hp.beta) * from_own
      reports = {'own_losses': of_own, 'meme_losses': of_meme}
      return of_own + of_meme, reports  # gradients of both share no leaf

    steps = {part: hp.train.sgd(down.round) for part in ('own', 'meme')}
    tx = optax.partition(steps, {part: part for part in steps})
    start = {'own': client.own, 'meme': down.params}
    models, info = hp.train.fit(task, start, data, rng, down.round, loss, tx)
    return Client(models['own']), models['meme'], info.metrics()

  averaging = global_model.federated_averaging(task, hp, local_update)
  algorithm = with_student(averaging, task, meme_task)
  algorithm = algorithm._replace(init_client=init_client)
  return (Stage('fml', hp.train.rounds, algorithm),)
