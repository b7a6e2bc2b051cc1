"""From the outline of a run to everything that it needs: data, task, stages."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.algorithm import Stage, unchanged
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.machine import read_ahead
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import AnyPath, ClientData, Task
from fedjax_pfl.data.client_data import on_device
from fedjax_pfl.data.clients_folder import check_unchanged
from fedjax_pfl.data.dealing import SPLITS, UNSEEN, Log
from fedjax_pfl.data.held_out import halves
from fedjax_pfl.data.images import Dataset
from fedjax_pfl.evaluation.measures import Measure, main_of
from fedjax_pfl.evaluation.own_metrics import Metrics, accuracy_by_shots
from fedjax_pfl.federated import sampling
from fedjax_pfl.federated.divided_models import OnModelAxis
from fedjax_pfl.federated.model_axis import Division, model_mesh
from fedjax_pfl.federated.placement import (
  OnDisk,
  OneDevice,
  OnHost,
  on_devices,
)
from fedjax_pfl.federated.sharding import choose_devices, devices_of_run
from fedjax_pfl.runs.run_dir import devices_of
from fedjax_pfl.settings import Settings
from fedjax_pfl.training import build_method, frozen_features
from fedjax_pfl.training.build_data import ExperimentData, build_data
from fedjax_pfl.training.outline import Outline, outline
from fedjax_pfl.training.privacy_budget import Open


class Experiment(NamedTuple):
  """Everything that a run needs."""

  outline: Outline
  data: ExperimentData
  task: Task  # what the method trains
  stages: tuple[Stage, ...]  # the method, with all that goes around it
  sampler: sampling.Sampler  # where not all clients take part
  everyone: sampling.Sampler  # where all do
  timing: Any = None  # a `Timing`, if time is simulated
  placement: OneDevice = OneDevice()  # where clients lie, and who works

  def images_of(self, clients: ClientData) -> np.ndarray:
    """Return the images of these clients as the data set has them."""
    is_train = clients.x is self.train.x
    return (self.dataset.train if is_train else self.dataset.test).x

  def read_ahead(self, clients: ClientData, ids: np.ndarray) -> None:
    """Let the system read the examples of clients that the host has in a file.

    Only of those whose rows lie side by side: each is asked for by itself.
    """
    images = self.images_of(clients)
    is_there = target() == 'cpu' or isinstance(clients.x, np.ndarray)
    if not is_there or not isinstance(images, np.memmap):
      return
    check_unchanged(images)
    rows, count = (np.asarray(part)[ids] for part in clients[2:4])
    is_row = np.arange(rows.shape[-1]) < count[..., None]
    first = np.min(rows, -1, where=is_row, initial=len(images))
    stop = np.max(rows, -1, where=is_row, initial=-1) + 1
    near = (first < stop) & (stop - first <= 2 * count)
    read_ahead(images, first[near], stop[near])

  def stages_of(self, settings: Settings) -> tuple[Stage, ...]:
    """Return the stages of settings that differ in traced numbers alone."""
    return build_method.build_stages(
      settings,
      self.task,
      clients=self.outline.clients,
      budget=self.privacy,
      sampler=self.sampler,
      timing=self.timing,
    )

  def with_settings(self, settings: Settings) -> 'Experiment':
    """Return the experiment of settings that differ in traced numbers alone."""
    if settings == self.settings:
      return self
    stages = self.stages_of(settings)
    for stage in stages:
      stage.validate_clients(self.train)
    outline = self.outline._replace(settings=settings)
    return self._replace(outline=outline, stages=stages)

  def with_data(self, **splits: ClientData) -> 'Experiment':
    """Return the experiment with other examples of its clients."""
    splits = {**self.data.splits, **splits}
    return self._replace(data=self.data._replace(splits=splits))

  @property
  def settings(self) -> Settings:
    return self.outline.settings

  @property
  def privacy(self) -> Open:
    return self.outline.privacy

  @property
  def dataset(self) -> Dataset:
    return self.data.dataset

  @property
  def train(self) -> ClientData:
    return self.data.train

  @property
  def test(self) -> ClientData:
    return self.data.test

  @property
  def data_id(self) -> str:
    """Return the fingerprint of images, partition, and model to start from."""
    return self.data.data_id

  @property
  def metrics(self) -> Metrics:
    return self.outline.metrics

  @property
  def measure(self) -> Measure:
    """Return what the numbers of clients are, that `correct` stands for."""
    return main_of(self.settings.data.loss)

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
    return self.everyone if stage.full_participation else self.sampler

  @property
  def clients_per_chunk(self) -> int | str:
    """Return the setting; 1 where clients have different models."""
    return 1 if self.task.others else self.settings.system.clients_per_chunk

  @property
  def eval_data(self) -> tuple[ClientData, ClientData]:
    """Return what clients adapt on, and what they are evaluated on."""
    return self._eval_data('')

  @property
  def unseen_eval_data(self) -> tuple[ClientData, ClientData]:
    """Return the same of the clients who come later."""
    return self._eval_data(UNSEEN)

  def _eval_data(self, who):
    train, test = (self.data.splits[f'{who}{name}'] for name in SPLITS)
    if self.settings.evaluation.adapt_on == 'test_half':
      return halves(test)
    return train, test

  @property
  def tests_by_batch(self) -> bool:
    """Return whether BatchNorm normalises with what is tested together."""
    is_batch = self.settings.model.norm_statistics == 'batch'
    has_norms = any(jax.tree.leaves(self.task.is_norm))
    return is_batch and has_norms and not self.task.batch_independent


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
  known = outline(config, log)
  return load(known, log)


def load(outline: Outline, log: Log) -> Experiment:
  """Return the experiment of an outline: the start, then the examples."""
  settings, model, start = outline.settings, outline.model, None
  if settings.init_from:
    from fedjax_pfl.training import warm_start

    start = warm_start.load_start(
      settings.init_from,
      settings.model.name,
      outline.shape.image_shape,
      model,
      log,
    )
    model = start.begin(model, settings.model.head_init)
  data = build_data(settings, log)
  for stage in outline.stages:
    stage.validate_clients(data.train)
  if start:
    data = data._replace(data_id=start.identify(settings.method, data))
  if settings.model.frozen_features:
    data = frozen_features.with_features(settings, model, start, data, log)
  experiment = completed(outline, model, data, log)
  return placed(experiment, log)


def completed(
  outline: Outline, model: Task, data: ExperimentData, log: Log
) -> Experiment:
  """Return the experiment of these examples, on one device."""
  settings, task, train = outline.settings, model, data.train
  if settings.model.frozen_features:
    task = frozen_features.head_task(model)
  if settings.data.imbalance_factor > 1:  # of any seed: a program is shared
    labels, number = data.dataset.train.y, data.dataset.num_classes
    by_shots = accuracy_by_shots(np.bincount(labels, minlength=number))
    outline = outline._replace(metrics={**by_shots, **outline.metrics})
  sampler = build_method.make_sampler(settings, np.asarray(train.count))
  timing = build_timing(settings, outline.stages, train, log)
  if timing and timing.schedule:
    sampler = sampling.scheduled(timing.schedule.cohorts)
  everyone = sampling.everyone(settings.data.num_seen_clients)
  experiment = Experiment(outline, data, task, (), sampler, everyone, timing)
  return experiment._replace(stages=experiment.stages_of(settings))


def build_timing(
  settings: Settings, stages: tuple[Stage, ...], train: ClientData, log: Log
) -> Any:
  """Return how long the rounds of a run take; None without speeds."""
  if not settings.speeds:
    return None
  from fedjax_pfl.around import sim_time

  seed = settings.seed
  speeds = settings.speeds.of_clients(seed, settings.data.num_seen_clients)
  if size := settings.speeds.buffer_size:
    sizes = settings.num_drawn, size
    return sim_time.make_buffers(stages, train, speeds, sizes, seed, log)
  return sim_time.make_timing(stages, train, speeds, settings.speeds, log)


def placed(experiment: Experiment, log: Log, place: str = '') -> Experiment:
  """Return the experiment with clients in this place, or where they belong.

  Without `devices` on those that are fastest for most of its rounds.
  """
  from fedjax_pfl.training import memory_estimate

  place = place or experiment.settings.system.clients_placement
  if place == 'auto':
    place = memory_estimate.first_with_room(experiment, log)
  placement = placement_in(experiment, place)
  experiment = experiment._replace(placement=placement)
  if isinstance(experiment.train.x, np.ndarray) and not placement.on_host:
    memory_estimate.check_room(experiment)  # before the device has all examples
  return moved(experiment)


def placement_in(experiment: Experiment, place: str) -> OneDevice:
  """Return the placement of clients in this place."""
  system, placement = experiment.settings.system, OneDevice()
  if place == 'host':
    placement = OnHost()
  elif place == 'disk':
    for stage in needing_all(experiment.stages):
      raise bad_input(
        'clients_placement',
        got='disk',
        expected=f'a place where {stage.name} may make or keep the states of '
        'all clients at once',
        choices=['host', 'device'],
      )
    placement = OnDisk()
  elif system.model_devices > 1:
    mesh = model_mesh(devices_of_run(system.devices), system.model_devices)
    placement = OnModelAxis(Division(mesh, experiment.task.divided))
  elif not system.debug:
    longest = max(experiment.stages, key=lambda stage: stage.rounds)
    size = experiment.sampler_of(longest).size
    placement = on_devices(system.devices or choose_devices(size))
  return placement


def moved(experiment: Experiment) -> Experiment:
  """Return the experiment with the data of clients where its placement says.

  Splits share their examples, before and after.
  """
  on_host, pools = experiment.placement.on_host, {}
  array = np.asarray if on_host else jnp.asarray

  def move(rows):
    if id(rows.x) not in pools:
      pools[id(rows.x)] = rows if on_host else on_device(rows)
    index, count = array(rows.index), array(rows.count)
    return pools[id(rows.x)]._replace(index=index, count=count)

  splits = experiment.data.splits.items()
  return experiment.with_data(**{name: move(rows) for name, rows in splits})


def placed_as_started(
  experiment: Experiment, workdir: AnyPath, log: Log
) -> Experiment:
  """Return the experiment where the run was started: on disk with `auto`.

  On a CPU, where `devices` is 0, on as many: sums over clients have their bits.
  """
  system, devices = experiment.settings.system, devices_of(workdir)
  if system.clients_placement == 'auto' and devices is not None:
    now, on_disk = experiment.placement, (Path(workdir) / 'states').exists()
    if (on_disk, devices) != (now.on_disk, now.num_devices):
      place = 'disk' if on_disk else 'device'
      log(f'clients_placement=auto: {place}, where the run began.')
      experiment = placed(experiment, log, place)
  is_chosen = system.devices or system.debug or experiment.placement.on_host
  is_chosen |= system.model_devices > 1
  is_one_cpu = target() == 'cpu' and jax.process_count() == 1
  if devices is None or is_chosen or not is_one_cpu:
    return experiment
  devices = min(devices, jax.local_device_count())
  return experiment._replace(placement=on_devices(devices))


def needing_all(stages: Sequence[Stage]) -> list[Stage]:
  """Return the stages that need the states of all clients at once."""
  is_whole = lambda stage: stage.initialize is not unchanged or stage.keep_best
  return [*filter(is_whole, stages)]
