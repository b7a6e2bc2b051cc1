"""Estimate the memory of a run, before its round is compiled.

  round    arguments: images, rows of indices, server, clients
           results: server
           work: C (own state before and after + upload)  +  c w
  evaluation  the same arguments  +  b v        c, b clients side by side

w and v, the work of one client, are the compiler's memory analysis of the
program of one client, divided where its model is; the round is not compiled.
Clients on the host count there, and on the device only a cohort of them. On a
mesh it is the memory of each device: of D, it owns the states of K / D clients
and runs C / D; the states of a cohort on their way between devices are on each
of them, twice. Images that a CPU reads from a file count on disk: the system
may drop them. An accelerator with clients on the host has the images of two
cohorts; the others count on the host, or on disk.
"""

import os
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import trees
from fedjax_pfl.core.algorithm import Stage, as_stored
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import compiler_options, target
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.data.dealing import Log
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.federated import chunking
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.training import best_models
from fedjax_pfl.training.build import Experiment, needing_all, placement_in
from fedjax_pfl.training.program import States, block_size, make_evaluation

FULL = 0.8  # of a memory, above which clients_placement=auto goes on


class Memory(NamedTuple):
  """Bytes of a stage, on each device but for `host`, `disk` and `best`."""

  images: int
  rows: int  # of indices
  server: int
  clients: int  # their states
  results: int  # of a round: the server again
  host: int  # clients, their rows and images, with clients_placement=host
  disk: int  # images in files; at most all states, with clients_placement=disk
  best: int  # on the host: models of best rounds, while they are chosen
  cohort: int = 0  # states before and after, and uploads
  work: int = 0  # of the clients side by side
  evaluation: int = 0  # of those evaluated side by side

  @property
  def round(self) -> int:
    """Return the bytes while a round runs."""
    return self._arguments + self.results + self.cohort + self.work

  @property
  def peak(self) -> int:
    return max(self.round, self._arguments + self.evaluation)

  @property
  def _arguments(self) -> int:
    return self.images + self.rows + self.server + self.clients


def forecasts(experiment: Experiment) -> list[tuple[str, Memory]]:
  """Return the name and the memory of every stage."""
  return [
    (stage.name, _with_work(experiment, stage, states, known))
    for stage, states, known in _known(experiment)
  ]


def check_room(experiment: Experiment) -> None:
  """Refuse a run whose data and states exceed the memory; compile nothing."""
  for *_, memory in _known(experiment):
    check_fits(memory, experiment)


def first_with_room(experiment: Experiment, log: Log) -> str:
  """Return the first place for clients that has room, or the last one.

  A checkpoint copies states that are in memory.
  """
  settings, told = experiment.settings, []
  places = ['device', 'host', 'disk']
  if settings.data.validation_fraction or needing_all(experiment.stages):
    places.remove('disk')
  if max(settings.system.devices, jax.process_count()) > 1:
    places = ['device']
  for place in places:
    chosen = experiment._replace(placement=placement_in(experiment, place))
    needs = [(0, 1, 'a memory that nobody knows')]
    for _, (_, clients), memory in _known(chosen):
      copied = trees.num_bytes(clients) * (place != 'disk')
      needs += _needs(memory._replace(host=memory.host + copied), chosen)
    need, has, where = max(needs, key=lambda need: need[0] / need[1])
    words = f'{need / 2**30:.2f} of the {has / 2**30:.2f} GiB of {where}'
    told.append(f'{place} takes {words}')
    if need <= FULL * has:
      break
  log(f'clients_placement=auto chooses {place}: {"; ".join(told)}.')
  return place


def _needs(
  memory: Memory, experiment: Experiment
) -> Iterator[tuple[int, int, str]]:
  """Yield the bytes that the run needs, those that there are, and where."""
  on_host = memory.host + memory.best
  if target() == 'cpu':  # it is the memory of all devices, too
    shared = memory.images + memory.rows + memory.server
    devices = experiment.placement.num_devices // jax.process_count()
    on_host += shared + devices * (memory.peak - shared)
  for need, has, where in (
    (memory.peak, room_on_device(), 'the device'),
    (on_host, room_on_host(), 'the host'),
  ):
    if has is not None:
      yield need, has, where


def check_fits(memory: Memory, experiment: Experiment) -> None:
  """Refuse a run that needs more than the device has, or the host."""
  for need, has, where in _needs(memory, experiment):
    if need > has:
      raise bad_input(
        'memory',
        got=f'{need / 2**30:.2f} GiB for this run',
        expected=f'at most the {has / 2**30:.2f} GiB of {where}',
        choices=[
          *['clients_per_chunk=1', 'a smaller batch_size'] * bool(memory.work),
          'fewer clients',
          *['clients_placement=host'] * (not memory.host),
          *['clients_placement=disk'] * (not experiment.placement.on_disk),
        ],
        cause='--forecast lists what takes how much',
      )


def room_on_device() -> int | None:
  """Return the memory of the device in bytes; of a CPU it is the host's."""
  device = jax.local_devices()[0]  # of another process it is not known
  if device.platform == 'cpu':
    return room_on_host()
  return (device.memory_stats() or {}).get('bytes_limit')


def room_on_host() -> int | None:
  try:
    return os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
  except (ValueError, OSError):  # not on every system
    return None


def as_table(forecasts: list[tuple[str, Memory]]) -> list[tuple[str, ...]]:
  """Return lines of cells: a column for each stage, the sums below."""
  lines = [('memory', *(name for name, _ in forecasts))]
  for name in (*Memory._fields, 'round', 'peak'):
    sizes = [getattr(memory, name) / 2**20 for _, memory in forecasts]
    lines.append((name, *(f'{size:,.1f} MiB' for size in sizes)))
  return lines


def _known(
  experiment: Experiment,
) -> Iterator[tuple[Stage, States, Memory]]:
  """Yield the stages with what follows from shapes: no work, no uploads."""
  train, test = experiment.train, experiment.test
  placement = experiment.placement
  num_clients = experiment.settings.data.num_seen_clients
  splits = experiment.data.splits.values()
  rows = trees.num_bytes([(clients.index, clients.count) for clients in splits])
  pools = {id(leaf): leaf for leaf in (train.x, train.y, test.x, test.y)}
  images = trees.num_bytes([*pools.values()])
  files = {id(x): x for x in map(experiment.images_of, (train, test))}
  files = sum(x.nbytes for x in files.values() if isinstance(x, np.memmap))
  is_fed = _is_fed(experiment)
  if is_fed or target() == 'cpu':
    images -= files
  for stage, *states in stage_shapes(experiment.stages, train):
    server, clients = map(placement.bytes_of, states)
    kept, choice = best_models.nothing_yet(experiment, stage, states)
    best = best_models.COPIES_KEPT * trees.num_bytes(kept)
    best += best_models.COPIES * trees.num_bytes(choice)
    stored = clients * placement.on_disk
    if placement.on_host:
      share = experiment.sampler_of(stage).size / num_clients
      here, sent = int(share * clients), int(share * rows)
      host = clients - stored + rows + images * is_fed
    else:
      share = -(-num_clients // placement.num_groups)
      here, host, sent = share * (clients // num_clients), 0, rows
    disk = files + stored
    moved = _moved(experiment, stage) if is_fed else images
    known = Memory(moved, sent, server, here, server, host, disk, best)
    yield stage, states, known


def _is_fed(experiment: Experiment) -> bool:
  """Return whether an accelerator has the examples of a cohort alone."""
  on_host = isinstance(experiment.train.x, np.ndarray)
  return experiment.placement.on_host and on_host


def _moved(experiment: Experiment, stage: Stage) -> int:
  """Return the bytes of examples that are moved to a device for a stage."""
  train, tests = experiment.train, experiment.dataset.test
  size = 2 * experiment.sampler_of(stage).size
  if stage.prepare_data is not as_stored:  # which has all
    size = len(train.count)
  total = _own_pool(train, size)
  if rows_fn := stage.algorithm.server_rows:
    of_server = len(rows_fn(len(train.y))) / len(train.y)
    total += int(of_server * trees.num_bytes((train.x, train.y)))
  if experiment.settings.evaluation.eval_global_model:
    total += trees.num_bytes(tests)
  return total


def _own_pool(data: ClientData, size: int) -> int:
  """Return the bytes of examples of so many clients: `with_own_pool`."""
  rows = min(len(data.x), size * data.index.shape[1])
  return rows * trees.num_bytes((data.x, data.y)) // max(1, len(data.x))


def _with_work(
  experiment: Experiment, stage: Stage, states: States, known: Memory
) -> Memory:
  """Return the memory of a stage that starts with states of these shapes."""
  size = experiment.sampler_of(stage).size
  settings, placement = experiment.settings, experiment.placement
  devices = placement.num_groups
  key = jax.eval_shape(jax.random.key, 0)
  data = jax.eval_shape(stage.prepare_data, states[0], experiment.train)
  ids = jax.ShapeDtypeStruct((size,), jnp.int32)
  setting = experiment.clients_per_chunk
  counts, batch_size = experiment.train.count, settings.train.batch_size
  limit = chunking.chunk_limit(setting, np.asarray(counts), size, batch_size)
  args = stage.algorithm, *states, ids, data, key
  chunk = chunking.chunk_size(setting, *args, limit=limit)
  first_client = partial(chunking.first_client, stage.algorithm)
  program = placement.lower(first_client, *args[1:])
  row, upload, metrics = program.out_info
  per_client = _analysis(program).temp_size_in_bytes
  state, up = map(placement.bytes_of, (row, (upload, metrics)))
  if chunk > 1:  # on their way to the results
    per_client += state + up
  made = 0 if stage.prepare_data is as_stored else trees.num_bytes(data.x)
  here, moved = -(-size // devices), 0  # clients that one device runs
  if placement.mesh and size < settings.data.num_seen_clients:
    moved = 2 * here * devices * state
  return known._replace(
    images=known.images + made,
    # With clients on the host, they are arguments and results: the states are
    # those of the next cohort.
    cohort=moved + here * (2 * state + up),
    work=min(chunk, here) * per_client,
    evaluation=_evaluation(experiment, stage, states),
  )


def _evaluation(experiment: Experiment, stage: Stage, states: States) -> int:
  """Return the work of an evaluation: of a block of clients."""
  settings, last = experiment.settings, stage is experiment.stages[-1]
  views = settings.final_views
  if not last:
    names = view_names(stage.algorithm, *states, experiment.train)
    views = [view for view in settings.evaluation.eval_views if view in names]
  if not views:
    return 0
  scoring = settings.evaluation.scoring
  evaluate = make_evaluation(
    experiment, stage.algorithm, views, scoring, keep_models=last, mesh=None
  )
  ids, key = jnp.zeros(1, jnp.int32), jax.eval_shape(jax.random.key, 0)
  args = *states, ids, *map(chunking.shapes_of, experiment.eval_data), key
  placement = experiment.placement
  memory = _analysis(placement.lower(evaluate, *args))
  block = block_size(experiment.cohort_size)
  chunk = chunking.evaluation_chunk(experiment.clients_per_chunk, block)
  here = min(chunk, -(-block // placement.num_groups))
  work = here * memory.temp_size_in_bytes + block * memory.output_size_in_bytes
  if _is_fed(experiment):
    work += 2 * sum(_own_pool(data, block) for data in experiment.eval_data)
  return work


def _analysis(program: jax.stages.Lowered) -> Any:
  options = compiler_options(runs=False)
  return program.compile(compiler_options=options).memory_analysis()
