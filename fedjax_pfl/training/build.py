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
from fedjax_pfl.evaluation.own_metrics import Metrics, metrics_of
from fedjax_pfl.federated import sampling
from fedjax_pfl.federated.placement import (
  ONE_DEVICE,
  OneDevice,
  OnHost,
  on_devices,
)
from fedjax_pfl.federated.sharding import choose_devices, make_mesh
from fedjax_pfl.models.registry import outline
from fedjax_pfl.settings import Settings, flat_config, parse_config
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.settings.schema import SystemSettings
from fedjax_pfl.settings.training_fields import DRAWN_SPEEDS
from fedjax_pfl.training import build_checks, build_method
from fedjax_pfl.training.build_data import UnseenClients, build_data


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
  stages: tuple[Stage, ...]
  sampler: sampling.Sampler  # where not all clients take part
  placement: OneDevice = ONE_DEVICE  # where clients lie, and who works
  metrics: Metrics = MappingProxyType({})  # the user's own, by name
  privacy: Any = None  # a `Budget`, if uploads are clipped and noised
  timing: Any = None  # a `Timing`, if time is simulated

  @property
  def known(self) -> dict[str, Any]:
    """Return what goes around the method, beside what settings say."""
    return {
      'budget': self.privacy,
      'sampler': self.sampler,
      'timing': self.timing,
    }

  def stages_of(self, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages of settings that differ in traced numbers alone."""
    return build_method.make_stages(settings, self.task, **self.known)

  @property
  def holds_seed(self) -> bool:
    """Return whether its functions hold what follows from the seed."""
    how = build_method.around_of(self.settings, self.task, **self.known)
    return how.holds_seed

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

  def size_of(self, stage: Stage) -> int:
    """Return how many places a round of this stage has."""
    return self.sampler_of(stage).size

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
    start.check_head(task, settings.model)
    task = start.begin(task)
  stages, budget = stages_and_budget(settings, task, shape, log)
  if idle := idle_failures(settings, stages):
    log(idle)
  data = build_data(settings, log)
  for stage in stages:
    stage.validate_clients(data.train)
  if start:
    data = data._replace(data_id=start.identify(settings.algorithm, data))
  sampler = build_method.make_sampler(settings, np.asarray(data.train.count))
  times = build_timing(settings, stages, data.train, log)
  if times and times.schedule:
    sampler = sampling.scheduled(times.schedule.cohorts)
  known = {'metrics': metrics, 'privacy': budget, 'timing': times}
  return completed(Experiment(settings, *data, task, (), sampler, **known))


def stages_and_budget(
  settings: Settings, task: Task, shape: Shape, log: Callable[[str], None]
) -> tuple[tuple[Stage, ...], Any]:
  """Return the method, checked on shapes, and its privacy; None without."""
  stages = build_method.build_stages(settings, task)
  # The names of its views do not depend on what the model computes.
  quick = outline(task)
  names_only = build_method.make_stages(settings, quick)
  build_checks.check_method(settings, names_only, task, shape)
  if not settings.dp.clip:
    return stages, None
  from fedjax_pfl.training import privacy_budget

  budget = privacy_budget.make_budget(settings, stages, quick, shape, log)
  return build_method.make_stages(settings, task, budget=budget), budget


def idle_failures(settings: Settings, stages: tuple[Stage, ...]) -> str:
  """Return what is set though it does nothing where all clients take part."""
  waits = [stage.name for stage in stages if stage.full_participation]
  own = settings.training
  named = {'dropout_rate': own.dropout_rate, 'deadline': own.deadline}
  named['on_divergence=exclude'] = settings.system.on_divergence == 'exclude'
  idle = [name for name, value in named.items() if value]
  if not (waits and idle):
    return ''
  return (
    f'In the rounds of {", ".join(waits)} all clients take part, without '
    f'{", ".join(idle)}.'
  )


def build_timing(
  settings: Settings,
  stages: tuple[Stage, ...],
  train: ClientData,
  log: Callable[[str], None],
) -> Any:
  """Return how long the rounds of a run take; None without speeds."""
  training, num_clients = settings.training, settings.data.num_seen_clients
  if training.client_speeds == 'none':
    return None
  from fedjax_pfl.around import sim_time

  if training.client_speeds == DRAWN_SPEEDS:
    sigma = training.speed_sigma
    speeds = sim_time.draw_speeds(settings.seed, sigma, num_clients)
  else:
    speeds = sim_time.read_speeds(training.client_speeds, num_clients)
  if training.buffer_size:
    how = (settings.num_drawn, training.buffer_size), settings.seed
    return sim_time.make_buffers(stages, train, speeds, *how, log)
  how = training.deadline, training.late_clients
  return sim_time.make_timing(stages, train, speeds, *how, log)


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
      cause='two ways to save memory or time that do not go together',
    )


def completed(experiment: Experiment) -> Experiment:
  """Return the experiment with its stages, and clients in their place."""
  stages = experiment.stages_of(experiment.settings)
  return placed(experiment._replace(stages=stages))


def placed(experiment: Experiment) -> Experiment:
  """Return the experiment with its clients where its settings put them.

  Without `devices` on those that are fastest for most of its rounds. A run
  whose clients run in a Python loop uses one device.
  """
  system, placement = experiment.settings.system, ONE_DEVICE
  if system.clients_placement == 'host':
    placement = OnHost()
  elif not system.debug:
    longest = max(experiment.stages, key=lambda stage: stage.rounds)
    size = experiment.size_of(longest)
    placement = on_devices(system.devices or choose_devices(size))
  return experiment._replace(placement=placement)


def with_numbers_of(experiment: Experiment, settings: Settings) -> Experiment:
  """Return the experiment of settings that differ in traced numbers alone."""
  stages = experiment.stages_of(settings)
  for stage in stages:
    stage.validate_clients(experiment.train)
  return experiment._replace(settings=settings, stages=stages)
