"""The loop of a run: stages x rounds, from one stop to the next.

A signal stops a run between two compiled calls, with a checkpoint. SIGTERM
comes before a preemptible machine is taken away, SIGINT from Ctrl-C. A call is
never interrupted, so a signal waits for one call (a round on a CPU; else
log_every of them), and, at the beginning, for its compilation. A second Ctrl-C
stops at once.
"""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import progress
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import target
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated.placement import on_devices
from fedjax_pfl.federated.sharding import describe
from fedjax_pfl.runs.run_dir import devices_of
from fedjax_pfl.settings import RESUMABLE, Settings, defaults, to_config
from fedjax_pfl.training import divergence, memory_estimate, multihost
from fedjax_pfl.training.advance import advance, cadence, evaluate_start, record
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.finalize import finalize
from fedjax_pfl.training.program import Program
from fedjax_pfl.training.state import (
  Training,
  places,
  save_state,
  start_stage,
  start_training,
)

# The data of an experiment: examples of clients, or of two groups of them.
SPLITS = ('train', 'test', 'validation', 'unseen')
SIGNALS = (signal.SIGTERM, signal.SIGINT)


def train(
  experiment: Experiment, workdir: str, program: Program | None = None
) -> dict[str, Any]:
  """Run the experiment in a directory, or continue it; return its result.

  A run that was stopped continues after its last checkpoint, with the bits of
  an unbroken one. A finished run is not changed.

  Args:
    experiment: what `build_experiment` returns.
    workdir: the run directory: new, empty, or of the same experiment.
    program: the compiled functions, which several runs share in `train_many`.

  Returns:
    result.json: 'views' has the summary of every view, 'seconds' the time.

  >>> import tempfile
  >>> experiment = pfl.build_experiment({
  ...   'dataset': 'digits', 'model': 'convnet3', 'num_clients': 4,
  ...   'max_train_examples': 80, 'rounds': 1, 'local_epochs': 1,
  ...   'batch_size': 20, 'views': ('initial',), 'eval_views': (),
  ... })
  >>> result = pfl.train(experiment, tempfile.mkdtemp())
  round 1/1...
  >>> result['status'], result['rounds'], list(result['views'])
  ('finished', 1, ['initial'])
  """
  if program is None:
    experiment = placed_as_started(experiment, workdir)
    memory_estimate.check_room(experiment)
    program = Program(experiment)
  config = to_config(experiment.settings)
  known = [config | {'data_dir': ''}, experiment.data_id, jax.__version__]
  multihost.check_alike('config', known)
  opened = multihost.open_run(
    workdir,
    config,
    data=experiment.data_id,
    log=progress.log,
    resumable=RESUMABLE,
    defaults=defaults(),
    tracker=experiment.settings.system.tracker,
    num_devices=experiment.placement.num_devices,
  )
  with contextlib.closing(opened) as run:
    if run.status() == 'finished':
      progress.log(f'{run.path} is finished: nothing to do.')
    else:
      finalize(run_rounds(start_training(experiment, run, program)))
    return run.result()


def placed_as_started(experiment: Experiment, workdir: PathLike) -> Experiment:
  """Return the experiment on the devices on which the run was started.

  On a CPU, where `devices` is 0: sums over clients have the bits of so many.
  """
  system, devices = experiment.settings.system, devices_of(workdir)
  is_chosen = system.devices or system.debug or experiment.placement.on_host
  is_one_cpu = target() == 'cpu' and jax.process_count() == 1
  if devices is None or is_chosen or not is_one_cpu:
    return experiment
  devices = min(devices, jax.local_device_count())
  return experiment._replace(placement=on_devices(devices))


def run_rounds(training: Training) -> Training:
  """Return the run after its last round."""
  experiment, done = training.experiment, training.done
  every = cadence(experiment.settings, experiment.rounds)
  if devices := describe(experiment.placement.mesh):
    progress.log(devices)
  if 0 < done < experiment.rounds:
    progress.log(f'Continuing after round {done} of {experiment.rounds}.')
  with (
    catch_signals() as signal_fn,
    progress.progress('training', experiment.rounds, start=done) as bar,
  ):
    for place in places(experiment.stages):
      training = evaluate_start(start_stage(training, place), place)
      if training.done < place.last and place.stage.note:
        progress.log(place.stage.note)
      while training.done < place.last:
        stop = every.next_stop(training.done, place.last)
        training, numbers = advance(training, place, stop)
        shown = ('loss', 'images_per_second')
        bar.update(stop, **{name: numbers[name] for name in shown})
        training = record(training, numbers, place, every)
        if number := multihost.any_of(signal_fn()):
          if training.run.last_checkpoint() != stop:
            save_state(training)
          progress.log(f'Saved after round {stop}; the same command continues.')
          raise Stopped(number, logged=True)
  return training


# ---- signals -----------------------------------------------------------------


class Stopped(KeyboardInterrupt):
  """A signal ended the program; all checkpoints that were saved are whole."""

  def __init__(self, number: int, *, logged: bool = False):
    super().__init__()
    self.status = 128 + number  # as shells have it: 143 for SIGTERM
    self.logged = logged  # whether it was logged that the run is saved


@contextlib.contextmanager
def catch_signals() -> Iterator[Callable[[], int]]:
  """Record signals; yield a function that returns the first one, or 0.

  Signals reach the main thread only: in another thread nothing is recorded. A
  signal that is ignored stays so, as SIGINT is in a job behind `&`.
  """
  received = []

  def handle(number, frame):
    if number == signal.SIGINT and received:
      raise Stopped(number)
    received.append(number)

  before = {}
  if threading.current_thread() is threading.main_thread():
    before = {
      number: signal.signal(number, handle)
      for number in SIGNALS
      if signal.getsignal(number) is not signal.SIG_IGN
    }
  try:
    yield lambda: received[0] if received else 0
  except Exception as error:
    if not received:
      raise
    # A caller that goes on after the error would go on after the signal, too.
    raise Stopped(received[0]) from error
  finally:
    for number, old in before.items():
      # None: a handler that was not set by Python, which cannot restore it.
      signal.signal(number, signal.SIG_DFL if old is None else old)
  if received:  # after the run looked for the last time
    raise Stopped(received[0])


# ---- several runs ------------------------------------------------------------


def train_many(
  experiments: Sequence[Experiment],
  workdirs: Sequence[str | PathLike],
  log: Callable[[str], None] = progress.log,
) -> list[dict[str, Any] | None]:
  """Run or continue experiments in turn; return their results.

  Runs that differ in seeds and in traced numbers share their compiled programs
  (share_programs.py). Each leaves in its directory what `train` leaves, and
  either function continues what the other started. A run that diverges is
  recorded (divergence.py) and has no result; the others go on.

  >>> experiments = [build_experiment({**config, 'seed': s}) for s in (0, 1)]
  >>> train_many(experiments, ['runs/seed0', 'runs/seed1'])
  """
  paths = [fspath(workdir) for workdir in workdirs]
  if len(set(paths)) != len(experiments):
    raise bad_input(
      'workdirs',
      got=paths,
      expected=f'{len(experiments)} directories, one for each run',
      cause='a name without the seed in it',
    )
  from fedjax_pfl.training.share_programs import share_programs

  results: list[dict[str, Any] | None] = [None] * len(experiments)
  experiments = list(map(placed_as_started, experiments, workdirs))
  for program, members in share_programs(experiments):
    memory_estimate.check_room(experiments[members[0]])
    shared = align([experiments[member] for member in members])
    log(_words_for([experiment.settings for experiment in shared]))
    for member, experiment in zip(members, shared, strict=True):
      try:
        results[member] = train(experiment, workdirs[member], program)
      except divergence.Diverged as error:
        divergence.record(error)
        log(f'{error}')
  return results


def _words_for(settings: Sequence[Settings]) -> str:
  """Return the line that is logged about runs of one program."""
  seeds = dict.fromkeys(str(one.seed) for one in settings)
  more = f' of several settings, {len(settings)} runs'
  more *= len(settings) > len(seeds)
  return f'{settings[0].algorithm}: training seed {", ".join(seeds)}{more}'


def align(experiments: Sequence[Experiment]) -> list[Experiment]:
  """Return the experiments with data of one shape, on the same images.

  Clients are padded to the widest of any seed, which moves results by no more
  than rounding; the images are those of the first.
  """
  first = experiments[0]
  for other in experiments:
    assert other.dataset.fingerprint == first.dataset.fingerprint
  splits = [
    {name: getattr(own, name) for name in SPLITS} for own in experiments
  ]

  def is_data(node):
    return isinstance(node, ClientData)

  return [
    own._replace(
      dataset=first.dataset,
      task=first.task,
      **jax.tree.map(_widen, data, *splits, is_leaf=is_data),
    )
    for own, data in zip(experiments, splits, strict=True)
  ]


def _widen(data: ClientData, *of_all: ClientData) -> ClientData:
  """Return the data as wide as the widest; padding is a valid index."""
  index = data.index  # [K, N]
  missing = max(own.index.shape[1] for own in of_all) - index.shape[1]
  if missing:
    pad = np.pad if isinstance(index, np.ndarray) else jnp.pad
    index = pad(index, ((0, 0), (0, missing)))
  return of_all[0]._replace(index=index, count=data.count)
