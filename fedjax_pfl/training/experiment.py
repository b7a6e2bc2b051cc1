"""From a config to all that a run needs: data, task and stages.

Every setting is checked, and the method traced on shapes, before any data are
read; the division of the data before anything is compiled or written.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from fedjax_pfl import algorithms
from fedjax_pfl.client import local_training, personalization
from fedjax_pfl.core.algorithm import Algorithm, Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData, Task
from fedjax_pfl.data import (
  PARTITIONS,
  Dataset,
  Images,
  Shape,
  describe,
  describe_empty_clients,
  find_recipe,
  fingerprint,
  load_dataset,
  make_transforms,
  partition,
  peek,
  scale_images,
  scale_shape,
  stack_clients,
)
from fedjax_pfl.evaluation import evaluate
from fedjax_pfl.federated import host_offload, server_training
from fedjax_pfl.federated.cohort import cohort_size, is_on_host
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.federated.sharding import make_mesh
from fedjax_pfl.models.head_init import with_head
from fedjax_pfl.models.outline import outline
from fedjax_pfl.models.task import make_task
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.settings.hyperparameters import check_hyperparameters
from fedjax_pfl.training.warm_start import (
  begin,
  check_same_clients,
  load_start,
  name_data,
)

SMALL_BATCH = 1000  # may be padding for the most part: it costs little


class Experiment(NamedTuple):
  """All that a run needs."""

  settings: Settings
  dataset: Dataset
  train: ClientData
  test: ClientData
  data_id: str  # fingerprint of images, partition, and `start` if there is one
  task: Task
  stages: tuple[Stage, ...]
  cohort_size: int

  @property
  def rounds(self) -> int:
    return sum(stage.rounds for stage in self.stages)

  @property
  def eval_data(self) -> tuple[ClientData, ClientData]:
    """Return what clients adapt on, and what they are evaluated on."""
    if self.settings.evaluation.adapt_on == 'test_half':
      return personalization.halves(self.test)
    return self.train, self.test


def build_experiment(
  config: Mapping[str, Any] | Settings, log=lambda text: None
) -> Experiment:
  """Return the experiment of a config: data, model and method, checked.

  Args:
    config: fields of a config by name, as `configs/*.py` make them; what it
      leaves out has its default (docs/settings.md).
    log: called with each sentence that a user should read.

  Returns:
    What `train` runs: `.settings`, `.train` and `.test` (`ClientData`),
    `.task`, `.stages`, `.cohort_size`, `.rounds`.

  >>> experiment = pfl.build_experiment(
  ...   {'dataset': 'digits', 'model': 'convnet3', 'num_clients': 20}
  ... )
  >>> experiment.train.count.shape, experiment.rounds
  ((20,), 32)
  """
  settings = parse_config(config)
  mesh_of(settings)  # refuses more devices than there are
  # Model and method first: they cost nothing, data may cost half a minute.
  shape = peek_shape(settings)
  task, start = build_task(settings, *shape), None
  if settings.init_from:
    start = load_start(
      settings.init_from, settings.model.name, shape.image_shape, task
    )
    task = begin(task, start)
  stages = build_stages(settings, task)
  # The names of its views do not depend on what the model computes.
  names_only = build_stages(settings, outline(task))
  _check_views(settings, names_only, shape.image_shape)
  _check_global_test(settings, stages[-1].algorithm)
  dataset, train, test, data_id = build_data(settings, log)
  _tell_server_share(settings, len(dataset.train.y), log)
  for stage in stages:
    stage.validate_clients(train)
  if is_on_host(train):
    host_offload.check_stages(stages, train)
  if start:
    if needs_same_clients(settings):
      check_same_clients(start, data_id)
    data_id = name_data(data_id, start)
  experiment = Experiment(
    settings,
    dataset,
    train,
    test,
    data_id,
    task,
    stages,
    cohort_size(settings.data.num_clients, settings.training.client_fraction),
  )
  _check_scoring(settings, _num_evaluated(settings, test))
  return experiment


def mesh_of(settings: Settings) -> Mesh | None:
  """Return the mesh of a run; None where its clients are not divided.

  That is so where they run in a Python loop, or are offloaded to the host.
  """
  system = settings.system
  mesh = make_mesh(system.devices)
  undivided = system.debug or system.clients_placement == 'host'
  return None if undivided else mesh


def peek_shape(settings: Settings) -> Shape:
  """Return image shape, as the model sees it, and classes; read no data."""
  name = settings.data.dataset
  side = find_recipe(name, settings.data.preprocessing).side
  return scale_shape(peek(name, settings.data.data_dir), side)


def build_task(
  settings: Settings, image_shape: tuple, num_classes: int
) -> Task:
  """Return the task of a config, for images of this shape."""
  augment, normalise = make_transforms(
    settings.data.dataset, image_shape, settings.data.preprocessing
  )
  task = make_task(
    settings.model.name,
    image_shape=image_shape,
    num_classes=num_classes,
    augment=augment,
    normalise=normalise,
    conv_impl=settings.model.conv_impl,
  )
  return with_head(task, settings.model.head_init, settings.model.head_bias)


def build_stages(
  settings: Settings,
  task: Task,
  watch: local_training.Watch | None = None,
) -> tuple[Stage, ...]:
  """Return the stages of the config's method, hyperparameters filled in.

  `watch` is shown what local training does; see `local.Watch`.
  """
  module = algorithms.load(settings.algorithm)
  rounds = settings.num_rounds
  shared = {
    'train': local_training.LocalTraining(
      rounds=rounds,
      epochs=settings.training.local_epochs,
      batch_size=settings.training.batch_size,
      learning_rate=local_training.step_schedule(
        settings.training.learning_rate,
        rounds,
        settings.training.lr_milestones,
        settings.training.lr_decay,
      ),
      momentum=settings.training.momentum,
      weight_decay=settings.training.weight_decay,
      aggregation=settings.training.aggregation,
      watch=watch,
    ),
    'finetune': personalization.Finetuning(
      **dataclasses.asdict(settings.finetune)
    ),
  }
  check_hyperparameters(settings.algorithm, settings.hp, module.HParams, shared)
  personalization.part_mask(
    task, settings.finetune.trainable, 'finetune.trainable'
  )
  hp = module.HParams(**shared, **settings.hp)
  if hasattr(module, 'check_start'):
    module.check_start(hp, settings.init_from)
  stages = module.build(task, hp)
  if not settings.training.server_data_fraction:
    return stages
  return server_training.share(
    stages,
    task,
    shared['train'],
    fraction=settings.training.server_data_fraction,
    part=settings.training.server_trainable,
    seed=settings.seed,
  )


def needs_same_clients(settings: Settings) -> bool:
  """Return whether `start` has to be a run with the clients of this one."""
  module = algorithms.load(settings.algorithm)
  return getattr(module, 'SAME_CLIENTS_AS_START', False)


def build_data(settings: Settings, log) -> tuple:
  """Return (dataset, train, test, fingerprint)."""
  dataset = load_images(settings, log)
  _check_batches(settings, len(dataset.train.y))
  indices = divide(settings, dataset)
  placement = settings.system.clients_placement
  train = stack_clients(dataset.train, indices[0], placement)
  pool, testing = dataset.test, 'testing'
  if settings.data.test_partition == 'split':
    pool = Images(train.x, train.y)  # which is on the device already
    testing = 'testing, on training images kept apart'
  test = stack_clients(pool, indices[1], placement)
  for split, data, rows in zip(
    ('training', testing), (train, test), indices, strict=True
  ):
    log(
      f'{dataset.name}, {split}: {describe(data)}; partition '
      f'{fingerprint(rows)}'
    )
  if note := describe_empty_clients(train, test):
    log(note)
  return dataset, train, test, identify(dataset, indices)


def load_images(settings: Settings, log) -> Dataset:
  """Return the images of a config, as many and as large as it wants them."""
  dataset = load_dataset(
    settings.data.dataset,
    data_dir=settings.data.data_dir,
    fallback_to_synthetic=settings.system.quick,
    log_fn=log,
  )
  if dataset.note:
    log(dataset.note)
  dataset = _first_examples(dataset, settings.data.max_train_examples)
  recipe = find_recipe(settings.data.dataset, settings.data.preprocessing)
  return scale_images(dataset, recipe.side)


def divide(settings: Settings, dataset: Dataset) -> tuple:
  """Return the rows of every client for training, and those for testing."""
  name = settings.data.partition
  return partition(
    name,
    dataset.train.y,
    dataset.test.y,
    num_clients=settings.data.num_clients,
    num_classes=dataset.num_classes,
    test_partition=settings.data.test_partition,
    test_shards_per_client=settings.data.test_shards_per_client,
    test_fraction=settings.data.test_fraction,
    seed=settings.seed,
    **{
      field: getattr(settings.data, field) for field in PARTITIONS[name]._fields
    },
  )


def identify(dataset: Dataset, indices: tuple) -> str:
  """Return the fingerprint of images and of who has which."""
  return f'{dataset.fingerprint}-{fingerprint(indices[0] + indices[1])}'


def _first_examples(dataset: Dataset, limit: int) -> Dataset:
  """Return the first images of the file, as many tests in proportion."""
  if not 0 < limit < len(dataset.train.y):
    return dataset
  share = limit / len(dataset.train.y)
  few = max(dataset.num_classes, round(share * len(dataset.test.y)))
  cut = {'train': limit, 'test': few}
  return dataset._replace(
    **{
      split: type(getattr(dataset, split))(
        getattr(dataset, split).x[:size], getattr(dataset, split).y[:size]
      )
      for split, size in cut.items()
    }
  )


def _tell_server_share(settings: Settings, size: int, log) -> None:
  """Say how many examples the server has; none is refused."""
  share = settings.training.server_data_fraction
  if share:
    number = len(server_training.shared_rows(settings.seed, share, size))
    log(f'server: {number:,} of the {size:,} training examples')


def _check_global_test(settings: Settings, method: Algorithm) -> None:
  """Refuse to evaluate a global model that the server has not got."""
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
      cause='a method whose clients keep a part of the model, or all of it',
    )


def _check_batches(settings: Settings, size: int) -> None:
  """Refuse large batches that all clients together cannot fill."""
  most = max(size, SMALL_BATCH)
  for name, batch_size in (
    ('batch_size', settings.training.batch_size),
    ('finetune.batch_size', settings.finetune.batch_size),
  ):
    if batch_size > most:
      raise bad_input(
        name,
        got=batch_size,
        expected=f'at most {most}: all clients have {size} training examples, '
        'and what a batch lacks is filled up with padding, and computed',
        cause='a digit too many, or a data set that was shrunk',
      )


def _num_evaluated(settings: Settings, test: ClientData) -> np.ndarray:
  """Return how many tests each client [K] is evaluated on, without a device."""
  counts = np.asarray(test.count)
  is_half = settings.evaluation.adapt_on == 'test_half'
  return counts - counts // 2 if is_half else counts


def _check_scoring(settings: Settings, counts: np.ndarray) -> None:
  """Refuse clients [K] whose tests fill no batch, where only such count."""
  size = settings.training.batch_size
  few = (counts > 0) & (counts < size)
  if settings.evaluation.scoring == 'whole_batches' and few.any():
    raise bad_input(
      'scoring',
      got=f'whole_batches with a client of {counts[few].min()} tests',
      expected=f'at least one whole batch, of {size} tests, for each client',
      choices=["scoring='exact'", 'a smaller batch_size', 'fewer clients'],
      cause='the code that scored so drops the last batch if it is not full',
    )


def _check_views(
  settings: Settings, stages: tuple[Stage, ...], image_shape: tuple
) -> None:
  """Trace, without computing: are the views of the config there?"""
  clients = settings.data.num_clients
  data = ClientData(
    jax.ShapeDtypeStruct((1, *image_shape), 'uint8'),
    jax.ShapeDtypeStruct((1,), 'int32'),
    jax.ShapeDtypeStruct((clients, 1), 'int32'),
    jax.ShapeDtypeStruct((clients,), 'int32'),
  )
  *_, (last, *states) = stage_shapes(stages, data)
  names = evaluate.view_names(last.algorithm, *states, data)
  for views in (settings.evaluation.views, settings.evaluation.eval_views):
    evaluate.check_views(views, names)
