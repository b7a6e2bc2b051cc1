"""Train a linear head on the features of a frozen body.

The features F(x) of all images are computed once where that is exact: images
are not augmented, and no layer depends on the batch.
"""

from fedjax_pfl.client import global_model
from fedjax_pfl.core import losses, trees
from fedjax_pfl.core.algorithm import Algorithm
from fedjax_pfl.core.types import Task


def head_averaging(
  task: Task, hp: global_model.HParams, max_steps: int, is_cached: bool
) -> Algorithm:
  """Return the rounds that train and average the head of {encoders, head}.

  A client has `max_steps` steps in a round at most, and the mean over clients
  that have examples is unweighted. `is_cached`: clients hold features, not
  images.
  """
  train = hp.train
  batching = train.batching(task)._replace(
    epochs=1,
    # min(number, max_steps), of whole numbers and of traced ones.
    steps=lambda number: number - (number > max_steps) * (number - max_steps),
  )
  if is_cached:
    batching = batching._replace(transform=lambda features, rng: features)

  def local_update(down, client, data, rng):
    def loss(head, batch, rng):
      f = batch.x
      if not is_cached:
        f = task.features(down.params, batch.x, batch.mask)
      logits = task.classify({'head': head}, f)
      return losses.batch_loss(logits, batch, task.example_loss)

    head, clock = down.params['head'], down.round
    head, info = train.fit(
      task, head, data, rng, clock, loss, batching=batching
    )
    params = {**down.params, 'head': head}
    return client, trees.select(params, task.is_head), info.metrics()

  unweighted = hp._replace(train=train._replace(aggregation='uniform'))
  return global_model.federated_averaging(task, unweighted, local_update)


def is_exact(task: Task) -> bool:
  """Return whether features computed once are those of every step."""
  return task.batch_independent and task.augment is task.normalise
