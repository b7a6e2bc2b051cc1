"""What is known of a run before its examples are read.

Every setting is checked here, and the method traced on shapes: what is refused
later are the examples, their partition, and the model to start from. Dry runs,
sweeps, prices and forecasts read an outline.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from fedjax_pfl.core.algorithm import Stage
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.trees import part_mask
from fedjax_pfl.core.types import ClientData, Task
from fedjax_pfl.core.user_code import check_loaded
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.data.images import Shape
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.evaluation.own_metrics import Metrics, chooser, metrics_of
from fedjax_pfl.federated.model_axis import check_table, model_mesh
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.federated.sharding import devices_of_run
from fedjax_pfl.models import registry
from fedjax_pfl.settings import Settings, flat_config, parse_config
from fedjax_pfl.settings.mistakes import check_parts
from fedjax_pfl.settings.schema import SystemSettings
from fedjax_pfl.training import build_checks, build_method, frozen_features
from fedjax_pfl.training.privacy_budget import Open, make_budget


class Outline(NamedTuple):
  """What is known of a run before its examples are read."""

  settings: Settings
  shape: Shape  # of an example
  model: Task
  task: Task  # what the method trains: the model, or its head alone
  inputs: Shape  # of an example, as the method has it
  clients: ClientData  # shapes, of one example for each
  # The method with what is known to go around it, of a model of the same leaves
  # whose outputs are 0: to trace a deep one takes seconds.
  stages: tuple[Stage, ...]
  metrics: Metrics  # the user's own
  privacy: Open = Open()  # or a `Budget`: what may be told of the run

  @property
  def views(self) -> tuple[str, ...]:
    """Return the names of the views that the last stage has."""
    *_, (last, *states) = stage_shapes(self.stages, self.clients)
    return view_names(last.algorithm, *states, self.clients)


def outline(
  config: Mapping[str, Any] | Settings,
  log: Callable[[str], None] = lambda text: None,
) -> Outline:
  """Return the outline of a config; refuse what could not be trained.

  Args:
    config: fields of a config by name; see `build_experiment`.
    log: called with each sentence that a user should read.
  """
  settings = parse_config(config)
  flat = flat_config(settings)
  check_loaded(flat)
  if settings is not config:  # typed
    check_parts([flat])
  check_devices(settings.system)
  run = sketch(settings)
  part_mask(run.task, settings.finetune.trainable, 'finetune.trainable')
  if (number := settings.system.model_devices) > 1:
    check_table(run.task, number)
  build_checks.check_method(settings, run.stages, run.task, run.clients)
  if idle := idle_failures(settings, run.stages):
    log(idle)
  if not settings.dp:
    return run
  budget = make_budget(settings, run.task, run.stages, run.clients, log)
  return run._replace(privacy=budget)


def sketch(settings: Settings) -> Outline:
  """Return the outline of settings of which no method was asked."""
  shape = build_method.peek_shape(settings.data)
  build_checks.check_inputs(settings, shape)
  model = build_method.build_task(settings, shape)
  build_checks.check_labels(settings, model, shape)
  task, inputs = model, shape
  if settings.model.frozen_features:
    build_checks.check_frozen(settings, model)
    task, inputs = frozen_features.head_of(model, shape)
  clients = shapes_of_clients(inputs, settings.data.num_seen_clients)
  quick = registry.outline(task)
  stages = build_method.build_stages(settings, quick, clients=clients)
  evaluation = settings.evaluation
  metrics = metrics_of(evaluation.metrics, task)
  chooser(evaluation.tune_by, evaluation.metrics, settings.data.loss)
  return Outline(settings, shape, model, task, inputs, clients, stages, metrics)


def check_devices(system: SystemSettings) -> None:
  """Refuse more devices than there are, or than can train together."""
  is_host = system.clients_placement in ('host', 'disk')
  number = max(system.devices, jax.process_count())
  if number > 1 and (is_host or system.debug):
    place = f'clients_placement={system.clients_placement}'
    name = place if is_host else 'debug=True'
    raise bad_input(
      'devices',
      got=f'{number} devices or processes, with {name}',
      expected='one, which then trains all clients of a round',
      choices=['devices=1, in one process', f'no {name}'],
    )
  devices = devices_of_run(system.devices)
  if system.model_devices > 1:
    model_mesh(devices, system.model_devices)


def idle_failures(settings: Settings, stages: tuple[Stage, ...]) -> str:
  """Return what is set though it does nothing where all clients take part."""
  waits = ', '.join(stage.name for stage in stages if stage.full_participation)
  idle = ['dropout_rate'] * bool(settings.failures.dropout_rate)
  idle += ['deadline'] * bool(settings.speeds.deadline)
  if settings.failures.on_divergence == 'exclude':
    idle.append('on_divergence=exclude')
  if not (waits and idle):
    return ''
  return (
    f'In the rounds of {waits} all clients take part, without '
    f'{", ".join(idle)}.'
  )
