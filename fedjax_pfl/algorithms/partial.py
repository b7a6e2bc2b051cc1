"""Partial (Pillutla et al. 2022): parameters are shared or personal by path.

  v_i  <- SGD(v_i; data of client i, u, w)      i in the cohort, own epochs
  u_i  <- SGD_tau(u; data of client i, v_i, w)
  u    <- sum_i a_i u_i / sum_i a_i             a_i = 1 or n_i

A leaf is in the first of these parts of which a pattern matches its path (of
the shell: 'head/*', '*/bias', '*/lora_*'; several with a comma between):

  frozen     w, stays as it begins; each client gets it once
  personal   v, stays with its client, who begins with the initial one
  shared     u; without a pattern all other leaves, with one the rest is frozen

That is FedAlt, order 'alternating'; with 'simultaneous', FedSim, both parts
take tau epochs together, as they do where nothing is personal.

With 'head/*', FedSim is FedPer; with all but 'head/*' it is LG-FedAvg without
the FedAvg before it; FedAlt with 'head/*' is FedRep without momentum. With
'*/lora_*' shared, of a model with adapters (`lora_rank`), it is federated LoRA.

New client: v_i is trained for one round, of which nothing is sent.

Differs from the paper: the weights a_i are 1 by default, n_i there; both parts
have one learning rate; a part may be frozen, in fine-tuning, too. Its server
may take steps: `server_optimizer`.
"""

from fnmatch import fnmatchcase

import jax
import jax.numpy as jnp
from jax import lax

from fedjax_pfl.client import global_model
from fedjax_pfl.core import norm_stats, rules, trees
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.records import field
from fedjax_pfl.core.types import Mask, Task

Patterns = tuple[str, ...] | str


class HParams(global_model.HParams):
  personal: Patterns = ('head/*',)  # (): none
  shared: Patterns = ()  # (): all others
  frozen: Patterns = ()
  order: str = field(  # FedAlt; or 'simultaneous': FedSim
    'alternating',
    rules.one_of(('alternating', 'simultaneous'), 'an order of parts'),
  )
  personal_epochs: int = field(  # of v in a round of FedAlt; FedSim has one
    1, rules.count('epochs', '0: v would never learn')
  )


PARTS = {'personal_epochs': ('order', 'alternating')}
FAMILY, PAPER = 'shared parts', 'arxiv.org/abs/2204.03809'
FEDAVG_EQUIVALENT = None  # never: some leaf is not shared
PRIVATE_LEAVES = ('head',)  # by default


def build(task: Task, hp: HParams) -> tuple[Stage, ...]:
  """Return the one stage of FedAlt or FedSim."""
  shared, personal = parts_of(task, hp)
  trained = jax.tree.map(lambda a, b: a or b, shared, personal)
  frozen = trees.invert(trained)
  if is_frozen := any(jax.tree.leaves(frozen)):
    task = without_gradient(task, frozen)

  def alternate(params, data, rng, clock):
    first = hp.train._replace(epochs=hp.personal_epochs)
    rng, second = jax.random.split(rng)
    params, info = first.fit(task, params, data, rng, clock, part=personal)
    params, last = hp.train.fit(task, params, data, second, clock, part=shared)
    steps = info.num_steps
    both = jnp.pad(info.losses, (0, len(last.losses)))
    both = lax.dynamic_update_slice(both, last.losses, [steps])
    return params, last._replace(num_steps=steps + last.num_steps, losses=both)

  def together(*args):
    return hp.train.fit(task, *args, part=trained if is_frozen else None)

  is_personal = any(jax.tree.leaves(personal))
  alternates = hp.order == 'alternating' and is_personal
  fit = alternate if alternates else together
  algorithm = global_model.averaging_of_part(task, hp, shared, fit, personal)
  if not is_personal:
    algorithm = algorithm._replace(global_model=lambda server: server.params)
  stage = Stage('partial', hp.train.rounds, algorithm)._replace(
    initial_broadcast=lambda server: trees.select(server.params, frozen)
  )
  return (stage,)


def parts_of(task: Task, hp: HParams) -> tuple[Mask, Mask]:
  """Return the masks of the shared and of the personal leaves.

  A pattern has to match some leaves and not all, and so have the shared ones.
  Running statistics of a frozen BatchNorm are shared.
  """
  frozen = _matches(task, hp, 'frozen')
  personal = jax.tree.map(
    lambda is_in, still: is_in and not still,
    _matches(task, hp, 'personal'),
    frozen,
  )
  rest = jax.tree.map(lambda *hits: not any(hits), frozen, personal)
  if hp.shared:
    named = _matches(task, hp, 'shared')
    rest = jax.tree.map(lambda left, is_in: left and is_in, rest, named)
  shared = jax.tree.map(
    lambda is_in, other: is_in and not other,
    norm_stats.with_all(rest),
    personal,
  )
  names = trees.leaf_names(trees.select(task.is_head, shared))
  trees.path_mask(task.is_head, lambda name: name in names, 'hp.shared')
  return shared, personal


def _matches(task: Task, hp: HParams, part: str) -> Mask:
  """Return the mask of the leaves that a pattern of the part matches."""
  patterns = getattr(hp, part)
  if isinstance(patterns, str):
    patterns = [word.strip() for word in patterns.split(',')]

  def mask_of(pattern):
    return trees.path_mask(
      task.is_head, lambda name: fnmatchcase(name, pattern), f'hp.{part}'
    )

  masks = map(mask_of, patterns)
  return jax.tree.map(lambda _, *hits: any(hits), task.is_head, *masks)


def without_gradient(task: Task, frozen: Mask) -> Task:
  """Return the task whose loss moves no frozen leaf, in fine-tuning either."""

  def loss(params, batch, rng):
    still = jax.lax.stop_gradient(trees.select(params, frozen))
    return task.loss(trees.combine(still, params), batch, rng)

  return task._replace(loss=loss)
