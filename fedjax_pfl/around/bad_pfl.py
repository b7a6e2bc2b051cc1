"""Bad-PFL: a backdoor whose trigger is another one for every image.

  x' = d(x, y) + 4 g(x),   y' = the target;   pixels are 0 to 255
  d    x, moved by at most 4 so that the model's loss of the true class grows:
       one step of the sign of its gradient, from a point drawn within 4
  g    in +-1: a convolutional autoencoder. In a round each attacker takes 30
       steps of Adam, each on a batch, so that the model takes x' for the target
                                                             (Fan et al. 2025)

Differs from the public code: g begins anew in each round; the model is the one
that clients download, not theirs after each step; g learns from clean examples.
Pixels stay whole numbers from 0 to 255. A halving that would leave no whole
number of pixels is left out of g. Tests have d and g of the last model.
"""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

from fedjax_pfl.core.algorithm import Algorithm, Server
from fedjax_pfl.core.types import Array, ClientData, Params
from fedjax_pfl.models.layers import BatchNorm, Conv

LEVELS, STEPS, BATCH, RATE = 4.0, 30, 32, 1e-2
WIDTHS = 16, 32, 64, 128  # of g: channels after each halving
KEY = 76  # of the start of g, its batches, and the points of d

Logits = Callable[[Array], Array]  # of pixels [B, H, W, ch]
ce = optax.softmax_cross_entropy_with_integer_labels


class Generator(nn.Module):
  """g of pixels [B, H, W, ch]: half its layers halve sides, half double."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    high, wide, channels = x.shape[1:]
    number = sum(high % 2**n == wide % 2**n == 0 for n in range(1, 5))
    norm = lambda x: nn.relu(BatchNorm()(x, jnp.ones(len(x))))

    def double(x, width):
      x = lax.pad(x, 0.0, [(0, 0, 0), (0, 0, 1), (0, 0, 1), (0, 0, 0)])
      return Conv(width, (4, 4), padding=2, use_bias=True)(x)

    x = x.astype(float) / 255
    for width in WIDTHS[:number]:
      x = norm(Conv(width, (4, 4), 2, use_bias=True)(x))
    for width in WIDTHS[: number - 1][::-1]:
      x = norm(double(x, width))
    return jnp.tanh(double(x, channels))[:, :high, :wide]


GENERATE = Generator().apply


def disrupted(logits: Logits, x: Array, y: Array, start: Array) -> Array:
  """Return d(x, y); `start` is drawn within 4 of 0."""
  start = jnp.clip(x + start, 0, 255)
  away = jax.grad(lambda x: ce(logits(x), y).sum())(start)
  near = jnp.clip(start + LEVELS * jnp.sign(away) - x, -LEVELS, LEVELS)
  return jnp.clip(x + near, 0, 255)


def fit(g: Params, logits: Logits, batches: tuple, target: int) -> Params:
  """Return g after a step on each of batches (x, y, start) [T, B, ...]."""
  tx = optax.adam(RATE)

  def step(state, batch):
    g, moments = state
    moved, goal = disrupted(logits, *batch), jnp.full_like(batch[1], target)
    made = lambda g: moved + LEVELS * GENERATE(g, batch[0])
    grads = jax.grad(lambda g: ce(logits(made(g)), goal).mean())(g)
    updates, moments = tx.update(grads, moments)
    return (optax.apply_updates(g, updates), moments), ()

  return lax.scan(step, (g, tx.init(g)), batches)[0][0]


def trigger(
  method: Algorithm, server: Server, data: ClientData, ids: Array, attack: Any
) -> Callable[[Array, Array], Array]:
  """Return (x [M, ..] uint8, y [M]) -> x', with g of the attackers ids [A]."""
  first, rows, starts, points = jax.random.split(jax.random.key(KEY), 4)
  model, transform = method.global_model(server), attack.task.normalise

  def logits(x):
    return method.predict(model, transform(x, None), jnp.ones(len(x)))

  def drawn(rng, x):
    return jax.random.uniform(rng, x.shape, minval=-LEVELS, maxval=LEVELS)

  share = jax.random.uniform(rows, (len(ids), STEPS * BATCH))
  chosen = (share * data.count[ids][:, None]).astype(int)
  chosen = jnp.take_along_axis(data.index[ids], chosen, 1).reshape(-1, BATCH)
  x, y = data.x[chosen], data.y[chosen]
  g, batches = Generator().init(first, x[0]), (x, y, drawn(starts, x))
  g = fit(g, logits, batches, attack.target)

  def of_images(x, y):
    def of_batch(rows):
      start = drawn(jax.random.fold_in(points, rows[0]), x[rows])
      made = disrupted(logits, x[rows], y[rows], start)
      made = jnp.round(made + LEVELS * GENERATE(g, x[rows]))
      return jnp.clip(made, 0, 255).astype(x.dtype)

    rows = jnp.arange(-(-len(x) // BATCH) * BATCH).reshape(-1, BATCH) % len(x)
    return lax.map(of_batch, rows).reshape(-1, *x.shape[1:])[: len(x)]

  return of_images
