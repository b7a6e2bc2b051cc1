"""From settings to the task, the stages and the sampler of a run."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from fedjax_pfl import algorithms
from fedjax_pfl.around import architectures
from fedjax_pfl.around.chain import Around, around
from fedjax_pfl.around.fair import STRENGTH, Fair
from fedjax_pfl.client import optimisers
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.core import user_code
from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.norm_stats import FROZEN
from fedjax_pfl.core.rules import is_int
from fedjax_pfl.core.types import ClientData, Task
from fedjax_pfl.core.user_code import call, is_code, value_of
from fedjax_pfl.data.datasets import peek
from fedjax_pfl.data.images import IMAGE, Shape, scale_shape
from fedjax_pfl.data.transforms import make_transforms, scaled
from fedjax_pfl.federated import sampling
from fedjax_pfl.models.head import with_head, with_width
from fedjax_pfl.models.lora import with_lora
from fedjax_pfl.models.module_functions import module_of
from fedjax_pfl.models.module_task import task_from_module
from fedjax_pfl.models.public_checkpoints import PUBLIC
from fedjax_pfl.models.registry import make_task, outline
from fedjax_pfl.settings import DataSettings, Settings

RUNNING = {'running': True, 'running_local': True, FROZEN: FROZEN}


def peek_shape(data: DataSettings) -> Shape:
  """Return what is known of the examples, as the model sees them."""
  shape = peek(
    data.dataset,
    data.data_dir,
    image_size=data.image_size,
    table=data.table,
  )
  return scale_shape(shape, data.side)


def build_task(settings: Settings, shape: Shape) -> Task:
  """Return the task of a config; of several models the first has the others."""
  names = settings.architectures.models or (settings.model.name,)
  first, *others = (_task_of(settings, name, shape) for name in names)
  return first._replace(others=tuple(others))


def _task_of(settings: Settings, name: str, shape: Shape) -> Task:
  data, model, image_shape = settings.data, settings.model, shape.image_shape
  known = data.dataset if shape.dtype == IMAGE else 'none'
  if name in PUBLIC and image_shape[2:] == (1,):
    image_shape = (*image_shape[:2], 3)
  transforms = make_transforms(known, image_shape, data.preprocessing)
  side = model.model_image_size
  if side or image_shape != shape.image_shape:
    transforms = scaled(transforms, side, image_shape[-1])
  if side:
    image_shape = side, side, image_shape[-1]
  augment, normalise = transforms
  parts = {
    'image_shape': image_shape,
    'num_classes': shape.num_classes,
    'augment': augment,
    'normalise': normalise,
    'loss': value_of('loss', data.loss) if is_code(data.loss) else data.loss,
    'conv_impl': model.conv_impl,
    'precision': model.precision,
    'running_statistics': RUNNING.get(model.norm_statistics, False),
  }

  def wrap(module):
    if width := settings.architectures.feature_width:
      module = with_width(module, width)
    if rank := model.lora_rank:
      module = with_lora(module, rank, model.lora_targets, model.lora_alpha)
    return module

  if is_code(name):
    is_whole = np.issubdtype(shape.dtype, np.integer) and shape.dtype != IMAGE
    dtype, code = int if is_whole else float, value_of('model', name)
    module = wrap(module_of(code, image_shape, shape.num_classes))
    task = task_from_module(module, input_dtype=dtype, **parts)
    task = task._replace(sibling=lambda name: make_task(name, **parts))
  else:
    task = make_task(name, wrap=wrap, **parts)
  return with_head(task, model.head_init, model.head_bias)


def build_stages(
  settings: Settings,
  task: Task,
  *,
  clients: ClientData | None = None,
  budget: Any = None,
  sampler: sampling.Sampler | None = None,
  timing: Any = None,
) -> tuple[Stage, ...]:
  """Build the stages of a method, and put around them what is known.

  Numbers may be traced. An error of the user's own method is one sentence.
  `clients` are shapes of the data, which several models need.
  """
  name, cause = settings.algorithm, 'a mistake in its build(task, hp)'

  def run():
    stages = build(settings, task, clients)
    if not isinstance(stages, tuple) or {*map(type, stages)} != {Stage}:
      raise bad_input(
        'algorithm',
        got=f'{name} with build that returns {user_code.describe(stages)}',
        expected='build(task, hp) -> (Stage, ...)',
        cause='a stage alone: write (stage,), with a comma',
      )
    return around(stages, _around(settings, task, budget, sampler, timing))

  if not is_code(name):
    return run()
  return call('algorithm', run, of=settings.method, cause=cause)


def call_method(
  settings: Settings, run: Callable[[], Any], cause: str, field: str = ''
) -> Any:
  """Return run(); an error in a method of the user's own is one sentence."""
  name, wrapper = settings.algorithm, settings.training.around
  if not is_code(wrapper or name):
    return run()
  code = value_of('around', wrapper) if wrapper else settings.method
  field = field or ('around' if wrapper else 'algorithm')
  return call(field, run, of=code, cause=cause)


def build(
  settings: Settings, task: Task, clients: ClientData | None
) -> tuple[Stage, ...]:
  """Return the stages of the method alone."""
  module = settings.method
  train = local_training_of(settings)
  hp = module.HParams(train=train, finetune=settings.finetune, **settings.hp)
  if hasattr(module, 'check_start') and not task.others:
    module.check_start(hp, settings.init_from)
  if not task.others:
    return module.build(task, hp)
  return _mixed(settings, module, hp, (task, *task.others), clients)


def _mixed(
  settings: Settings,
  module: ModuleType,
  hp: Any,
  tasks: tuple[Task, ...],
  clients: ClientData,
) -> tuple[Stage, ...]:
  """Return the stages of the method for clients of several models."""
  groups, number = settings.architectures, settings.data.num_seen_clients
  quick = [module.build(outline(task), hp) for task in tasks]
  names = [*map(user_code.without_digest, groups.models)]
  works = algorithms.across_models()
  forms = [
    architectures.message_forms(stages, names, clients, works)
    for stages in zip(*quick, strict=True)
  ]
  built = [module.build(task, hp) for task in tasks]
  of_client, built = groups.of_clients(number), zip(*built, strict=True)
  return tuple(
    architectures.mixed(stages, of_client, form)
    for stages, form in zip(built, forms, strict=True)
  )


def local_training_of(settings: Settings) -> LocalTraining:
  """Return what a client does in a round, with the learning rate of each."""
  training, rounds = settings.training, settings.num_rounds
  rate = optimisers.step_schedule(
    training.learning_rate, rounds, training.lr_milestones, training.lr_decay
  )
  weights = settings.aggregation.weights
  return settings.train._replace(
    rounds=rounds, learning_rate=rate, aggregation=weights
  )


def _around(
  settings: Settings,
  task: Task,
  budget: Any,
  sampler: sampling.Sampler | None,
  timing: Any,
) -> Around:
  """Return what goes around a method, of what is known."""
  wrapper, parts = settings.training.around, {}
  if settings.model.norm_statistics == 'running_local':
    parts['keeps_statistics'] = task
  if sampler:
    parts['failures'] = settings.failures._replace(
      joining_rate=sampler.joining,
      is_private=bool(settings.dp),
      has_deadline=settings.speeds.deadline > 0,
    )
  attack = settings.attack._replace(num_classes=task.num_classes, task=task)
  clients, rule = settings.data.num_seen_clients, settings.aggregation.rule
  aggregation = settings.aggregation._replace(
    attack=attack, num_clients=clients
  )
  if strength := STRENGTH.get(rule):
    known = settings.aggregation.fairness or strength
    rate, size = settings.training.learning_rate, settings.train.batch_size
    parts['fair'] = Fair(rule, known, rate, task, size, clients)
  if settings.server_training:
    train = local_training_of(settings)
    parts['server_training'] = settings.server_training._replace(
      task=task, train=train, seed=settings.seed
    )
  return Around(
    own=own_wrapper(wrapper) if wrapper else None,
    server_optimiser=settings.server,
    aggregation=aggregation,
    compression=settings.compression,
    privacy=budget.mechanisms() if budget else (),
    buffers=timing and timing.buffers,
    **parts,
  )


def own_wrapper(name: str) -> Callable[[Stage], Stage]:
  """Return the user's own function from a stage to a stage."""

  def wrap(stage):
    code = value_of('around', name)
    cause = 'a mistake in it: it is called with each stage of the method'
    wrapped = call('around', lambda: code(stage), of=code, cause=cause)
    if isinstance(wrapped, Stage):
      return wrapped
    raise bad_input(
      'around',
      got=f'{user_code.describe(wrapped)} from {name}',
      expected='a function that returns a stage: stage._replace(algorithm=..)',
    )

  return wrap


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
  code = value_of('sampling', name)
  cause = (
    'a mistake in it: it is called with the number of examples of each '
    'client [K], and client_fraction'
  )
  sampler = call(
    'sampling', lambda: code(counts, fraction), of=code, cause=cause
  )
  is_sampler = isinstance(sampler, sampling.Sampler)
  if not (is_sampler and is_int(sampler.size) and 1 <= sampler.size <= clients):
    got = (
      f'a Sampler of size {sampler.size}' if is_sampler else repr(sampler)[:80]
    )
    raise bad_input(
      'sampling',
      got=f'{got} from {name}',
      expected=f'pfl.Sampler(draw, size) with a size from 1 to {clients}',
    )
  checked = lambda: sampling.checked(sampler, clients, settings.num_rounds)
  return call('sampling', checked, of=code, cause=cause)
