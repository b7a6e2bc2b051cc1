"""Settings that do not fit the data or the method: refused before training."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.core.user_code import (
  FORM,
  NAME,
  call,
  describe,
  is_code,
  value_of,
)
from fedjax_pfl.data import IMAGE, Dataset
from fedjax_pfl.evaluation.own_metrics import Metrics, check_metrics
from fedjax_pfl.federated.cohort import all_send
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.run_fields import EvaluationSettings
from fedjax_pfl.training.views import shapes_of_clients

SMALL_BATCH = 1000  # may be padding for the most part: it costs little


def check_method(
  settings: Settings, stages: tuple[Stage, ...], image_shape: tuple
) -> None:
  """Refuse a method of the user's own whose functions do not fit together.

  One client of each stage is traced, on shapes: its state and the server's stay
  of the same kind.
  """
  if not is_code(settings.algorithm):
    return
  name = settings.algorithm
  if not isinstance(stages, tuple) or {*map(type, stages)} != {Stage}:
    raise _no_method(name, f'build that returns {describe(stages)}')
  data = shapes_of_clients(settings, image_shape)
  found = call(
    'algorithm',
    lambda: [
      (stage.name, server)
      + jax.eval_shape(_one_client(stage), server, clients, data)
      for stage, server, clients in stage_shapes(stages, data)
    ],
    of=value_of('algorithm', name),
    cause='a mistake in that file',
  )
  for stage, server, client, new_client, new_server, metrics in found:
    if _kinds(client) != _kinds(new_client):
      raise _no_method(name, f'another kind of client after a fit of {stage}')
    if _kinds(server) != _kinds(new_server):
      raise _no_method(name, f'another kind of server after a round of {stage}')
    if not {'loss', 'num_steps'} <= {*metrics}:
      raise _no_method(name, f'the metrics {", ".join(metrics)} in {stage}')


def _one_client(stage: Stage) -> Callable:
  """Return what passes one client through all functions of a round."""
  algorithm = stage.algorithm

  def run(server, clients, data):
    client, key = trees.gather(clients, 0), jax.random.key(0)
    own = data._replace(index=data.index[0], count=data.count[0])
    down = algorithm.download(server, client)
    after, up, metrics = algorithm.local_update(down, client, own, key)
    senders = all_send(jnp.zeros(1, int), data.count[:1], data)
    uploads = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], up)
    return client, after, algorithm.aggregate(server, uploads, senders), metrics

  return run


def _kinds(tree):
  leaves, structure = jax.tree.flatten(tree)
  return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _no_method(name: str, problem: str) -> Exception:
  return bad_input(
    'algorithm',
    got=f'{name} with {problem}',
    expected='build(task, hp) -> (Stage, ...), rounds that keep the shapes of '
    'server and clients, and metrics with loss and num_steps',
    cause='a function that returns something else: core/algorithm.py says what',
  )


def check_global_model(settings: Settings, method: Algorithm) -> None:
  """Refuse to evaluate a global model where the server has none."""
  if settings.evaluation.eval_global_model and method.global_model is None:
    raise bad_input(
      'eval_global_model',
      got=True,
      expected=f'False for {settings.algorithm}: its server holds no whole '
      'model that could be evaluated on the whole test set',
      choices=[
        'eval_global_model=False, to evaluate the models of the clients alone',
        "test_partition='whole', to evaluate each of them on all tests",
      ],
      cause='a method whose clients hold a part of the model, or all of it',
    )


def check_global_tests(settings: Settings, dataset: Dataset) -> None:
  """Refuse to evaluate a global model on a test set without examples."""
  if settings.evaluation.eval_global_model and not len(dataset.test.y):
    raise bad_input(
      'eval_global_model',
      got=True,
      expected='False: the data set has no test examples of its own',
      choices=['eval_global_model=False', "the words 'test' in `split`"],
      cause='own arrays whose clients are tested on training images',
    )


def check_inputs(settings: Settings, dtype: str, shape: tuple) -> None:
  """Refuse what is for images alone where the data are other inputs."""
  if dtype == IMAGE:
    return
  name, preprocessing = settings.model.name, settings.data.preprocessing
  if preprocessing != 'default':
    raise bad_input(
      'preprocessing',
      got=preprocessing,
      expected='default: `inputs` are what the model gets, as they are',
      cause='a setting for images, which a file has under the name images',
    )
  if is_code(name):
    return
  if dtype != 'float32':
    raise bad_input(
      'model',
      got=f'{name} for inputs of {dtype}',
      expected='a model of your own, which embeds whole numbers',
      choices=[f'model={FORM}'],
      cause='a model for images, or `inputs` that are numbers and no tokens: '
      'store those as floats',
    )
  if len(shape) != 3:
    raise bad_input(
      'model',
      got=f'{name} for inputs of shape {tuple(shape)}',
      expected='a model of your own, or inputs (height, width, channels)',
      choices=[f'model={FORM}'],
      cause='a model for images: the field was left out',
    )


def check_batches(settings: Settings, num_examples: int) -> None:
  """Refuse large batches that all clients together cannot fill."""
  largest = max(num_examples, SMALL_BATCH)
  for name, batch_size in (
    ('batch_size', settings.training.batch_size),
    ('finetune.batch_size', settings.finetune.batch_size),
  ):
    if batch_size > largest:
      raise bad_input(
        name,
        got=batch_size,
        expected=f'at most {largest}: all clients have {num_examples} training '
        'examples, and a batch with fewer examples is padded and computed',
        cause='a digit too many, or a data set that was shrunk',
      )


def check_scoring(settings: Settings, test: ClientData) -> None:
  """Refuse clients whose tests fill no batch, where only such count."""
  counts = np.asarray(test.count)  # [K]
  if settings.evaluation.adapt_on == 'test_half':
    counts = counts - counts // 2
  size = settings.training.batch_size
  few = (counts > 0) & (counts < size)
  if settings.evaluation.scoring == 'whole_batches' and few.any():
    raise bad_input(
      'scoring',
      got=f'whole_batches with a client of {counts[few].min()} tests',
      expected=f'at least one whole batch, of {size} tests, for each client',
      choices=["scoring='exact'", 'a smaller batch_size', 'fewer clients'],
      cause='a scoring that drops the last batch if it is not full',
    )


def check_download(
  settings: Settings, stages: tuple[Stage, ...], image_shape: tuple
) -> None:
  """Refuse clients who come later where the server has nothing for them."""
  number = settings.data.unseen_clients
  if not number:
    return
  data = shapes_of_clients(settings, image_shape)
  *_, (last, server, clients) = stage_shapes(stages, data)
  client = jax.eval_shape(lambda rows: trees.gather(rows, 0), clients)
  down = jax.eval_shape(last.algorithm.download, server, client)
  if trees.num_bytes(down):
    return
  raise bad_input(
    'unseen_clients',
    got=number,
    expected=f'0 for {settings.algorithm}: its server sends nothing, so that a '
    'client who comes later would train alone, as all the others do',
    choices=['unseen_clients=0', 'a method whose server sends a model'],
    cause='a comparison of new clients with training alone: that is the '
    'accuracy of all clients of this method',
  )


def load_metrics(settings: EvaluationSettings, num_classes: int) -> Metrics:
  """Return the user's metrics by name, checked; {} without any."""
  names = settings.metrics
  metrics = {
    NAME.fullmatch(name)['name']: value_of('metrics', name) for name in names
  }
  if len(metrics) < len(names):
    raise bad_input(
      'metrics',
      got=names,
      expected='functions of different names: a result has them by name',
      cause='a function that is listed twice, or two files with one name',
    )
  check_metrics(metrics, num_classes)
  return metrics
