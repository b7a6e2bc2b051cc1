"""Where a model puts the test images (FedBABU, Figures 15 and 16).

Features are the head's input. Images go through the model in stored order, in
batches of all classes: those that are shown are chosen afterwards, so that
BatchNorm sees what it sees in a test.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedjax_pfl.core.types import ClientData, Params, Task
from fedjax_pfl.data.batching import rows_in_order
from fedjax_pfl.data.images import Images
from fedjax_pfl.evaluation.metrics import TEST_BATCH

PERPLEXITY = 30.0


def image_features(
  task: Task, params: Params, images: Images, batch_size: int = TEST_BATCH
) -> np.ndarray:
  """Return the features [P, F] of all images."""
  number = len(images.y)
  size = min(batch_size, number)
  data = ClientData(
    jnp.asarray(images.x),
    jnp.asarray(images.y, jnp.int32),
    jnp.arange(number),
    jnp.asarray(number, jnp.int32),
  )

  @jax.jit
  def compute(params, data):
    def batch(position):
      x, _, real = rows_in_order(data, data.index, position, size)
      x = task.normalise(x, jax.random.key(0))
      return task.features(params, x, real.astype(x.dtype))

    return lax.map(batch, jnp.arange(-(-number // size)))  # [batches, B, F]

  rows = np.asarray(compute(params, data))
  return rows.reshape(-1, rows.shape[-1])[:number]


def embed(features: np.ndarray, seed: int = 0) -> np.ndarray:
  """Return t-SNE's map of the features [P, F] to the plane: [P, 2].

  The perplexity is 30, or less for few points; begun from the principal
  components. Axes and distances between groups mean nothing.
  """
  from sklearn.manifold import TSNE  # 1 s

  perplexity = min(PERPLEXITY, (len(features) - 1) / 3)
  return TSNE(
    perplexity=perplexity, init='pca', random_state=seed, n_jobs=-1
  ).fit_transform(np.asarray(features, np.float32))
