"""From a config to all that a run needs: data, task and stages.

Every setting is checked before any data are read, and everything else before
anything is compiled or written.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from fedjax_pfl import algorithm, evaluate, local, personalize
from fedjax_pfl.algorithm import Stage
from fedjax_pfl.data import (
  Source,
  describe,
  fingerprint,
  load_source,
  make_transforms,
  partition,
  peek,
  stack_clients,
)
from fedjax_pfl.engine import cohort_size, init_states
from fedjax_pfl.errors import bad_input
from fedjax_pfl.models.task import make_task
from fedjax_pfl.settings import check_settings, num_rounds
from fedjax_pfl.types import ClientData, Task


class Experiment(NamedTuple):
  """A config made real; `settings` is the config as a plain dict."""

  settings: dict[str, Any]
  source: Source
  train: ClientData
  test: ClientData
  data_id: str  # fingerprint of images and partition
  task: Task
  stages: tuple[Stage, ...]
  cohort_size: int

  @property
  def rounds(self) -> int:
    return sum(stage.rounds for stage in self.stages)


def build(settings: Mapping[str, Any], say=lambda text: None) -> Experiment:
  """Return the experiment of a config; `say` is told what a user should know.

  >>> experiment = build(get_config('quick').to_dict(), print)
  """
  settings = dict(settings)
  check_settings(settings)
  # Model and method first: they cost nothing, data may cost half a minute.
  shape = peek(settings['dataset'], settings['data_dir'])
  task = build_task(settings, *shape)
  stages = build_stages(settings, task)
  source, train, test, data_id = build_data(settings, say)
  experiment = Experiment(
    settings,
    source,
    train,
    test,
    data_id,
    task,
    stages,
    cohort_size(settings['clients'], settings['fraction']),
  )
  _check_views(experiment)
  return experiment


def build_task(
  settings: Mapping[str, Any], image_shape: tuple, num_classes: int
) -> Task:
  """Return the task of a config, for images of this shape."""
  augment, normalise = make_transforms(settings['dataset'], image_shape)
  return make_task(
    settings['model'],
    image_shape=image_shape,
    num_classes=num_classes,
    augment=augment,
    normalise=normalise,
    lowering=settings['lowering'],
  )


def build_stages(settings: Mapping[str, Any], task: Task) -> tuple[Stage, ...]:
  """Return the stages of the config's method, hyperparameters filled in."""
  module = algorithm.load(settings['algorithm'])
  rounds = num_rounds(settings)
  shared = {
    'train': local.Training(
      rounds=rounds,
      epochs=settings['local_epochs'],
      batch_size=settings['batch_size'],
      learning_rate=local.step_schedule(
        settings['learning_rate'], rounds, tuple(settings['lr_drops'])
      ),
      momentum=settings['momentum'],
      weight_decay=settings['weight_decay'],
      aggregation=settings['aggregation'],
    ),
    'personal': personalize.Personalization(
      **{
        **settings['finetune'],
        'epochs': tuple(settings['finetune']['epochs']),
      }
    ),
  }
  own = [name for name in module.HParams._fields if name not in shared]
  for name in settings['hp']:
    if name not in own:
      raise bad_input(
        'hp',
        got=name,
        expected=f'a hyperparameter of {settings["algorithm"]}',
        choices=own,
        cause='a setting of another method, or a typing error',
      )
  return module.build(task, module.HParams(**shared, **settings['hp']))


def build_data(settings: Mapping[str, Any], say) -> tuple:
  """Return (source, train, test, fingerprint)."""
  source = load_source(
    settings['dataset'],
    data_dir=settings['data_dir'],
    fallback_to_synthetic=settings['quick'],
    tell_fn=say,
  )
  if source.note:
    say(source.note)
  source = _first_examples(source, settings['examples'])
  indices = partition(
    settings['partition'],
    source.train.y,
    source.test.y,
    num_clients=settings['clients'],
    num_classes=source.num_classes,
    shards=settings['shards'],
    seed=settings['seed'],
  )
  train = stack_clients(source.train, indices[0])
  test = stack_clients(source.test, indices[1])
  say(f'{source.name}, training: {describe(train)}')
  say(f'{source.name}, testing: {describe(test)}')
  data_id = f'{source.fingerprint}-{fingerprint(indices[0] + indices[1])}'
  return source, train, test, data_id


def _first_examples(source: Source, limit: int) -> Source:
  """Return the first images of the file, as many tests in proportion."""
  if not 0 < limit < len(source.train.y):
    return source
  share = limit / len(source.train.y)
  few = max(source.num_classes, round(share * len(source.test.y)))
  cut = {'train': limit, 'test': few}
  return source._replace(
    **{
      split: type(getattr(source, split))(
        getattr(source, split).x[:size], getattr(source, split).y[:size]
      )
      for split, size in cut.items()
    }
  )


def _check_views(experiment: Experiment) -> None:
  """Trace, without computing: are the views of the config there?"""
  algorithm = experiment.stages[-1].algorithm
  server, clients = jax.eval_shape(
    lambda: init_states(algorithm, experiment.train, jax.random.key(0))
  )
  names = evaluate.view_names(algorithm, server, clients, experiment.train)
  for field in ('views', 'eval_views'):
    evaluate.check_views(experiment.settings[field], names)
