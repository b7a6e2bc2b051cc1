"""From a config to its task, its stages and its sampler.

Around a method go, from the inside: the server's optimiser, clients that keep
running statistics, compression, training on the server's own data. What holds
more than its settings comes later (`Experiment.stages_of`).
"""

import numpy as np

from fedjax_pfl import algorithms
from fedjax_pfl.client import optimisers, personalization
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import is_int
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.core.types import Task
from fedjax_pfl.core.user_code import call, is_code, value_of
from fedjax_pfl.data.datasets import peek
from fedjax_pfl.data.images import IMAGE, Shape, scale_shape
from fedjax_pfl.data.transforms import find_recipe, make_transforms
from fedjax_pfl.federated import sampling
from fedjax_pfl.models.head_init import with_head
from fedjax_pfl.models.module_task import make_user_task
from fedjax_pfl.models.registry import make_task, outline
from fedjax_pfl.settings import DataSettings, Settings
from fedjax_pfl.training import build_checks


def peek_shape(data: DataSettings) -> Shape:
  """Return what is known of the examples, as the model sees them."""
  side = find_recipe(data.dataset, data.preprocessing).side
  return scale_shape(peek(data.dataset, data.data_dir), side)


def build_task(settings: Settings, shape: Shape) -> Task:
  """Return the task of a config, for these examples."""
  data, model, loss = settings.data, settings.model, settings.training.loss
  build_checks.check_inputs(model.name, data.preprocessing, shape)
  name = data.dataset if shape.dtype == IMAGE else 'none'
  recipe = name, shape.image_shape, data.preprocessing
  augment, normalise = make_transforms(*recipe)
  how = {
    'image_shape': shape.image_shape,
    'num_classes': shape.num_classes,
    'augment': augment,
    'normalise': normalise,
    'loss': value_of('loss', loss) if is_code(loss) else None,
    'conv_impl': model.conv_impl,
    'precision': model.precision,
    'running_statistics': model.norm_statistics != 'batch',
  }
  if model.lora_rank:
    from fedjax_pfl.models.lora import with_lora

    adapters = model.lora_rank, model.lora_targets, model.lora_alpha
    how['wrap'] = lambda module: with_lora(module, *adapters)
  if is_code(model.name):
    is_whole = np.issubdtype(shape.dtype, np.integer)
    how['input_dtype'] = int if is_whole and shape.dtype != IMAGE else float
    task = make_user_task(value_of('model', model.name), **how)
  else:
    task = make_task(model.name, **how)
  build_checks.check_labels(task, model.name, shape.labels)
  return with_head(task, model.head_init, model.head_bias)


def build_stages(settings: Settings, task: Task) -> tuple[Stage, ...]:
  """Return the stages of the config's method, checked against its task."""
  part_mask(task, settings.finetune.trainable, 'finetune.trainable')
  if not is_code(settings.algorithm):
    return make_stages(settings, task)
  return call(
    'algorithm',
    lambda: make_stages(settings, task),
    of=algorithms.load(settings.algorithm),
    cause='a mistake in its build(task, hp)',
  )


def outline_stages(settings: Settings) -> tuple[Stage, ...]:
  """Return the stages of a config, of a model whose outputs are 0: quick."""
  task = build_task(settings, peek_shape(settings.data))
  return build_stages(settings, outline(task))


def make_stages(settings: Settings, task: Task) -> tuple[Stage, ...]:
  """Return the stages of a config that `build_stages` has checked.

  Its numbers may be traced: see settings/validate.py.
  """
  module, training = algorithms.load(settings.algorithm), settings.training
  rounds = training.num_rounds
  local = LocalTraining(
    rounds=rounds,
    epochs=training.local_epochs,
    batch_size=training.batch_size,
    learning_rate=optimisers.step_schedule(
      training.learning_rate, rounds, training.lr_milestones, training.lr_decay
    ),
    momentum=training.momentum,
    weight_decay=training.weight_decay,
    optimizer=training.optimizer,
    clip_norm=training.clip_norm,
    aggregation=training.aggregation,
  )
  finetune = personalization.Finetuning(**vars(settings.finetune))
  hp = module.HParams(train=local, finetune=finetune, **settings.hp)
  if hasattr(module, 'check_start'):
    module.check_start(hp, settings.init_from)
  if task.num_labels > 1:
    scoring = settings.evaluation.scoring
    build_checks.check_tokens(settings.algorithm, module, scoring)
  stages = module.build(task, hp)
  if training.server_optimizer != 'none':
    from fedjax_pfl.around import server_optimiser

    how = server_optimiser.ServerOptimiser(
      training.server_optimizer,
      training.server_learning_rate,
      training.server_momentum,
    )
    stages = server_optimiser.optimised(stages, how)
  if settings.model.norm_statistics == 'running_local':
    from fedjax_pfl.around import running_statistics

    stages = running_statistics.kept_by_clients(stages, task)
  if training.compression != 'none':
    from fedjax_pfl.around import compression

    how = compression.Compression(
      training.compression,
      training.compression_levels,
      training.compression_share,
    )
    # What is clipped is what arrives.
    stages = compression.compressed(stages, how, decoded=settings.dp.clip > 0)
  if not training.server_data_fraction:
    return stages
  from fedjax_pfl.around import server_training

  return server_training.share(
    stages,
    task,
    local,
    fraction=training.server_data_fraction,
    part=training.server_trainable,
    seed=settings.seed,
  )


def make_sampler(
  settings: Settings, counts: np.ndarray | None = None
) -> sampling.Sampler:
  """Return who takes part in a round.

  A sampler of the user's own sees the training examples of each client [K], or
  ones under privacy: there, who is drawn may not depend on the data.
  """
  name, clients = settings.training.sampling, settings.data.num_seen_clients
  fraction = settings.training.client_fraction
  if not is_code(name):
    return sampling.SAMPLINGS[name](clients, fraction, settings.dp.bands)
  if settings.dp.clip:
    counts = np.ones(clients, int)
  own = call(
    'sampling',
    lambda: value_of('sampling', name)(counts, fraction),
    of=value_of('sampling', name),
    cause='a mistake in it: it is called with the number of examples of each '
    'client [K], and client_fraction',
  )
  is_sampler = isinstance(own, sampling.Sampler)
  if not (is_sampler and is_int(own.size) and 1 <= own.size <= clients):
    got = f'a Sampler of size {own.size}' if is_sampler else repr(own)[:80]
    raise bad_input(
      'sampling',
      got=f'{got} from {name}',
      expected=f'pfl.Sampler(draw, size) with a size from 1 to {clients}',
      cause='the function that draws, in place of one that returns a Sampler',
    )
  return sampling.checked(own, clients)
