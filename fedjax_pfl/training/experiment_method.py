"""The model and the method of an experiment: its task and its stages."""

import dataclasses

import numpy as np

from fedjax_pfl import algorithms
from fedjax_pfl.client import local_training, optimisers, personalization
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.parts import part_mask
from fedjax_pfl.core.types import ExampleLoss, Task
from fedjax_pfl.core.user_code import NAME, is_code, value_of
from fedjax_pfl.data import (
  IMAGE,
  Shape,
  find_recipe,
  make_transforms,
  peek,
  peek_dtype,
  scale_shape,
)
from fedjax_pfl.evaluation.own_metrics import Metrics, check_metrics
from fedjax_pfl.federated import server_training
from fedjax_pfl.models.head_init import with_head
from fedjax_pfl.models.task import make_task
from fedjax_pfl.models.user_model import make_user_task
from fedjax_pfl.settings import Settings
from fedjax_pfl.settings.hyperparameters import check_hyperparameters
from fedjax_pfl.training.experiment_checks import check_inputs

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
  """Return the task of a config, for examples of this shape."""
  data, model = settings.data, settings.model
  dtype = peek_dtype(data.dataset, data.data_dir)
  check_inputs(settings, dtype, image_shape)
  name = data.dataset if dtype == IMAGE else 'none'
  augment, normalise = make_transforms(name, image_shape, data.preprocessing)
  how = {
    'image_shape': image_shape,
    'num_classes': num_classes,
    'augment': augment,
    'normalise': normalise,
    'loss': _loss_of(settings),
    'conv_impl': model.conv_impl,
    'precision': model.precision,
  }
  if is_code(model.name):
    is_whole = np.issubdtype(dtype, np.integer) and dtype != IMAGE
    how['input_dtype'] = int if is_whole else float
    task = make_user_task(value_of('model', model.name), **how)
  else:
    task = make_task(model.name, **how)
  return with_head(task, model.head_init, model.head_bias)


def _loss_of(settings: Settings) -> ExampleLoss | None:
  """Return the user's loss; None is cross-entropy."""
  name = settings.training.loss
  return value_of('loss', name) if is_code(name) else None


def build_metrics(settings: Settings, num_classes: int) -> Metrics:
  """Return the user's metrics by name, checked; {} without any."""
  names = settings.evaluation.metrics
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
