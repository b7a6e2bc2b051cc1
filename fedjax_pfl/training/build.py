"""From a config to everything that a run needs: data, task and stages.

Every setting is checked, and the method traced on shapes, before any data are
read; the partition of the data before anything is compiled or written.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import ClientData, Task
from fedjax_pfl.core.user_code import check_loaded
from fedjax_pfl.data.held_out import halves
from fedjax_pfl.data.images import Dataset, Shape
from fedjax_pfl.evaluation import fairness
from fedjax_pfl.evaluation.own_metrics import Metrics, metrics_of
from fedjax_pfl.federated import sampling
from fedjax_pfl.federated.placement import OneDevice, OnHost, on_devices
from fedjax_pfl.federated.sharding import choose_devices, make_mesh
from fedjax_pfl.models.registry import outline
from fedjax_pfl.settings import Settings, flat_config, parse_config
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.settings.schema import SystemSettings
from fedjax_pfl.training import build_checks, build_method, frozen_features
from fedjax_pfl.training.build_data import Log, UnseenClients, build_data


class Experiment(NamedTuple):
  """Everything that a run needs."""

  settings: Settings
  dataset: Dataset
  train: ClientData
  test: ClientData
  validation: ClientData | None  # of the training images, for choosing
  unseen: UnseenClients | None  # who come later: in none of the above
  data_id: str  # fingerprint: images, partition, the model of `init_from`
  task: Task
  method: tuple[Stage, ...]  # without what goes around it
  sampler: sampling.Sampler  # where not all clients take part
  placement: OneDevice = OneDevice()  # where clients lie, and who works
  metrics: Metrics = MappingProxyType({})  # the user's own, and by shots
  privacy: Any = None  # a `Budget`, if uploads are clipped and noised
  timing: Any = None  # a `Timing`, if time is simulated
  stages: tuple[Stage, ...] = ()  # the method, with all that goes around it

  def around(self, method: tuple[Stage, ...], settings: Settings):
    """Return stages with what goes around them in this run."""
    known = dict(sampler=self.sampler, timing=self.timing, budget=self.privacy)
    return build_method.wrapped(method, settings, self.task, **known)

  def stages_of(self, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages of settings that differ in traced numbers alone."""
    return self.around(build_method.build(settings, self.task), settings)

  @property
  def holds_seed(self) -> bool:
    """Return whether functions hold what the seed draws: examples, buffers."""
    has_buffers = self.timing is not None and self.timing.buffers is not None
    return bool(self.settings.server_training) or has_buffers

  @property
  def rounds(self) -> int:
    return sum(stage.rounds for stage in self.stages)

  @property
  def cohort_size(self) -> int:
    """Return how many places a round has, or how many uploads a buffer."""
    return self.sampler.size

  def sampler_of(self, stage: Stage) -> sampling.Sampler:
    """Return who takes part in the rounds of this stage."""
    if stage.full_participation:
      return sampling.everyone(self.settings.data.num_seen_clients)
    return self.sampler

  @property
  def clients_per_chunk(self) -> int | str:
    """Return the setting; 1 where clients have different models."""
    return 1 if self.task.others else self.settings.system.clients_per_chunk

  @property
  def eval_data(self) -> tuple[ClientData, ClientData]:
    """Return what clients adapt on, and what they are evaluated on."""
    return self._eval_data(self.train, self.test)

  @property
  def unseen_eval_data(self) -> tuple[ClientData, ClientData]:
    """Return the same of the clients who come later."""
    return self._eval_data(*self.unseen)

  def _eval_data(self, train, test):
    if self.settings.evaluation.adapt_on == 'test_half':
      return halves(test)
    return train, test


def build_experiment(
  config: Mapping[str, Any] | Settings,
  log: Callable[[str], None] = lambda text: None,
) -> Experiment:
  """Return the experiment of a config: data, model and method, checked.

  Args:
    config: fields of a config by name, as `configs/*.py` make them; what it
      leaves out has its default (docs/settings.md). Code of your own that it
      names has to be loaded: `load_code`.
    log: called with each sentence that a user should read.

  Returns:
    What `train` runs: `.settings`, `.train` and `.test` (`ClientData`),
    `.task`, `.stages`, `.cohort_size`, `.rounds`.

  >>> experiment = pfl.build_experiment({
  ...   'dataset': 'digits', 'model': 'convnet3', 'num_clients': 4,
  ...   'max_train_examples': 80, 'rounds': 1, 'batch_size': 20,
  ... })
  >>> experiment.train.count.shape, experiment.rounds
  ((4,), 1)
  """
  settings = parse_config(config)
  flat = flat_config(settings)
  check_loaded(flat)
  if settings is not config:  # typed
    check_parts([flat])
  check_alone(settings.system)
  make_mesh(settings.system.devices)  # refuses more than there are
  # Model and method first: they cost nothing, data may cost half a minute.
  shape = build_method.peek_shape(settings.data)
  metrics = metrics_of(settings.evaluation.metrics, shape.num_classes)
  task, start = build_method.build_task(settings, shape), None
  if settings.init_from:
    from fedjax_pfl.training import warm_start

    start = warm_start.load_start(
      settings.init_from, settings.model.name, shape.image_shape, task, log
    )
    task = start.begin(task, settings.model.head_init)
  whole = task
  task, shape = frozen_features.head_of(settings, task, shape)
  method, budget = method_and_budget(settings, task, shape, log)
  if idle := idle_failures(settings, method):
    log(idle)
  data = build_data(settings, log)
  if settings.data.imbalance_factor > 1:  # of any seed: a program is shared
    sizes = np.bincount(data.dataset.train.y, minlength=shape.num_classes)
    metrics = {**fairness.accuracy_by_shots(sizes), **metrics}
  for stage in method:
    stage.validate_clients(data.train)
  if start:
    data = data._replace(data_id=start.identify(settings.algorithm, data))
  if settings.model.frozen_features:
    data = frozen_features.with_features(settings, whole, start, data, log)
  sampler = build_method.make_sampler(settings, np.asarray(data.train.count))
  stages = build_method.wrapped(method, settings, task, budget=budget)
  times = build_timing(settings, stages, data.train, log)
  if times and times.schedule:
    sampler = sampling.scheduled(times.schedule.cohorts)
  known = {'metrics': metrics, 'privacy': budget, 'timing': times}
  return completed(Experiment(settings, *data, task, method, sampler, **known))


def method_and_budget(
  settings: Settings, task: Task, shape: Shape, log: Log
) -> tuple[tuple[Stage, ...], Any]:
  """Return the method, checked on shapes, and its privacy; None without.

  It is checked on an outline of the model: to trace a deep one takes seconds.
  """
  method, quick = build_method.build_checked(settings, task), outline(task)
  traced = build_method.build_checked(settings, quick)
  stages = build_method.in_a_sentence(
    settings, lambda: build_method.wrapped(traced, settings, quick)
  )
  build_checks.check_method(settings, stages, task, shape)
  if not settings.dp:
    return method, None
  from fedjax_pfl.training import privacy_budget

  how = (method, traced), quick, shape, log
  return method, privacy_budget.make_budget(settings, *how)


def idle_failures(settings: Settings, stages: tuple[Stage, ...]) -> str:
  """Return what is set though it does nothing where all clients take part."""
  waits = ', '.join(stage.name for stage in stages if stage.full_participation)
  idle = ['dropout_rate'] * bool(settings.failures.dropout_rate)
  idle += ['deadline'] * bool(settings.speeds.deadline)
  if settings.failures.on_divergence == 'exclude':
    idle.append('on_divergence=exclude')
  words = f'all clients take part, without {", ".join(idle)}'
  return f'In the rounds of {waits} {words}.' if waits and idle else ''


def build_timing(
  settings: Settings, stages: tuple[Stage, ...], train: ClientData, log: Log
) -> Any:
  """Return how long the rounds of a run take; None without speeds."""
  if not (how := settings.speeds):
    return None
  from fedjax_pfl.around import sim_time

  seed = settings.seed
  speeds = how.of_clients(seed, settings.data.num_seen_clients)
  if how.buffer_size:
    sizes = settings.num_drawn, how.buffer_size
    return sim_time.make_buffers(stages, train, speeds, sizes, seed, log)
  return sim_time.make_timing(stages, train, speeds, how, log)


def check_alone(system: SystemSettings) -> None:
  """Refuse several devices or processes where one trains all clients."""
  is_host = system.clients_placement == 'host'
  number = max(system.devices, jax.process_count())
  if number > 1 and (is_host or system.debug):
    name = 'clients_placement=host' if is_host else 'debug=True'
    raise bad_input(
      'devices',
      got=f'{number} devices or processes, with {name}',
      expected='one, which then trains all clients of a round',
      choices=['devices=1, in one process', f'no {name}'],
    )


def completed(experiment: Experiment) -> Experiment:
  """Return the experiment with its stages, and clients in their place.

  Without `devices` on those that are fastest for most of its rounds.
  """
  system, placement = experiment.settings.system, OneDevice()
  stages = experiment.around(experiment.method, experiment.settings)
  if system.clients_placement == 'host':
    placement = OnHost()
  elif not system.debug:
    longest = max(stages, key=lambda stage: stage.rounds)
    size = experiment.sampler_of(longest).size
    placement = on_devices(system.devices or choose_devices(size))
  return experiment._replace(stages=stages, placement=placement)


def with_numbers_of(experiment: Experiment, settings: Settings) -> Experiment:
  """Return the experiment of settings that differ in traced numbers alone."""
  if settings == experiment.settings:
    return experiment
  method = build_method.build(settings, experiment.task)
  for stage in method:
    stage.validate_clients(experiment.train)
  return completed(experiment._replace(settings=settings, method=method))
