"""The model and the method of an experiment: its task and its stages."""

import dataclasses

from fedjax_pfl import algorithms
from fedjax_pfl.client import local_training, optimisers, personalization
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.parts import part_mask
from fedjax_pfl.core.types import Task
from fedjax_pfl.data import (
  Shape,
  find_recipe,
  make_transforms,
  peek,
  scale_shape,
)
from fedjax_pfl.federated import server_training
from fedjax_pfl.models.head_init import with_head
from fedjax_pfl.models.task import make_task
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.hyperparameters import check_hyperparameters

# Hyperparameters that are records of other fields of the config.
SHARED_RECORDS = 'train', 'finetune'


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
    precision=settings.model.precision,
  )
  return with_head(task, settings.model.head_init, settings.model.head_bias)


def build_stages(
  settings: Settings,
  task: Task,
  watch: local_training.Watch | None = None,
) -> tuple[Stage, ...]:
  """Return the stages of the config's method, hyperparameters filled in.

  `watch` observes local training: see `local_training.Watch`.
  """
  module = algorithms.load(settings.algorithm)
  check_hyperparameters(
    settings.algorithm, settings.hp, module.HParams, SHARED_RECORDS
  )
  part_mask(task, settings.finetune.trainable, 'finetune.trainable')
  return make_stages(settings, task, watch)


def make_stages(
  settings: Settings,
  task: Task,
  watch: local_training.Watch | None = None,
) -> tuple[Stage, ...]:
  """Return the stages of a config that `build_stages` has checked.

  Its numbers may be traced: see core/traced_number.py.
  """
  module = algorithms.load(settings.algorithm)
  finetune = dataclasses.asdict(settings.finetune)
  shared = {
    'train': _local_training(settings, watch),
    'finetune': personalization.Finetuning(**finetune),
  }
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


def _local_training(
  settings: Settings, watch: local_training.Watch | None
) -> local_training.LocalTraining:
  training, rounds = settings.training, settings.num_rounds
  return local_training.LocalTraining(
    rounds=rounds,
    epochs=training.local_epochs,
    batch_size=training.batch_size,
    learning_rate=optimisers.step_schedule(
      training.learning_rate, rounds, training.lr_milestones, training.lr_decay
    ),
    momentum=training.momentum,
    weight_decay=training.weight_decay,
    aggregation=training.aggregation,
    watch=watch,
  )


def needs_same_clients(settings: Settings) -> bool:
  """Return whether `init_from` has to be a run on the clients of this one."""
  module = algorithms.load(settings.algorithm)
  return getattr(module, 'SAME_CLIENTS_AS_START', False)
