"""The bars of the project: limits of what is measured, by name.

The function of a name takes the number of repeats and yields its bars. A bar
that cannot be measured on this machine gives the reason, and is neither met nor
missed.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments import commandline
from experiments.accelerators.programs import make_programs
from experiments.benchmarks import measure, yardstick
from experiments.benchmarks.cases import MODELS, Case
from experiments.benchmarks.programs import (
  make_clients,
  make_program,
  make_stage,
  program_bytes,
)
from experiments.benchmarks.screen import Bar
from experiments.benchmarks.timing import in_turn, ratios, spread
from fedjax_pfl import algorithms
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.federated.cohort import gather
from fedjax_pfl.federated.host_offload import compile_round
from fedjax_pfl.federated.sampling import sample_cohorts
from fedjax_pfl.training import memory_estimate
from fedjax_pfl.training.build import build_experiment

REGISTERED = (100, 1_000, 10_000, 100_000)
SMALL = Case('convnet3', clients=10, steps=2, image_shape=(8, 8, 3))
MIB = 2**20
STARTED = ('digits.py:fedbabu', 'fedbabu_cifar100.py:quick')
STARTS = {'first': 23, 'second': 8}  # seconds, of an evaluation before
# Not of a user: main.py has its own.
UNSET = ('FEDJAX_PFL_CACHE', 'JAX_COMPILATION_CACHE_DIR', 'GLIBC_TUNABLES')
PERIOD = 0.02  # seconds between two checks


def training(model: str, repeats: int) -> Iterator[Bar]:
  """Yield local training with a model against PyTorch at its best."""
  for case in MODELS[model].cases:
    yield _against_torch(case, 'training', repeats)
  if model == 'convnet4':
    row, has_torch = MODELS[model], measure.has_torch()
    measured = measure.measure(row.cases[0], 'training', repeats, has_torch)
    share, low, high = (100 * part for part in measured.share_of_product())
    name = f'{row.name}, share of the product peak'
    note = f'{low:.0f} to {high:.0f} % in {repeats} repeats'
    note += '; FLOPs of the direct convolutions'
    yield Bar(name, share, 50, '%', 'at least', note)


def evaluation(repeats: int) -> Iterator[Bar]:
  """Yield fine-tuning and evaluation of all clients against PyTorch."""
  for row in MODELS.values():
    if row.is_evaluated:
      yield _against_torch(row.cases[0], 'evaluation', repeats)


def _against_torch(case: Case, work: str, repeats: int) -> Bar:
  row, ratio, note = MODELS[case.model], None, measure.NO_TORCH
  if measure.has_torch():
    best = yardstick.at_our_best(case, work)
    measured = measure.measure(best, work, repeats, with_torch=True)
    typed = measured.against_torch(as_typed=True) or measured.against_torch()
    ratio, note = typed.median, how_measured(measured)
  name = f'{row.name}, batch {case.batch}'
  name += ', fine-tuning evaluation' * (work == 'evaluation')
  return Bar(name, ratio, row.limit, 'x PyTorch', 'at least', note)


def how_measured(ours: measure.Measured) -> str:
  """Return what ran, against what, the spread, and what did not take part."""
  ratio, images = ours.against_torch(), ours.rate(ours.images).median
  text = (
    f'{yardstick.in_words(ours.case.devices)} against {ours.torch_variant}: '
    f'{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) in '
    f'{len(ours.seconds)} repeats; {images:,.0f} images/s'
  )
  if typed := ours.against_torch(as_typed=True):
    text = f'as typed, {typed.low:.2f} to {typed.high:.2f}; best form: {text}'
  left_out = yardstick.ranking(ours.case).left_out
  return f'{text}; {left_out}' if left_out else text


def startup(repeats: int) -> Iterator[Bar]:
  """Yield the first and the second start of every config.

  Seconds from the command to the first round's line of metrics, in a new run
  directory: with an empty cache folder, and with the cache of the first.
  Synthetic images replace CIFAR, so that no data are loaded.
  """
  del repeats  # the first start cannot be repeated
  for config in STARTED:
    with tempfile.TemporaryDirectory() as folder:
      for name, limit in STARTS.items():
        seconds, busy = start(config, Path(folder), name)
        note = f'{busy:.1f} s of processor time until a round was logged'
        title = f'{name} start, {config.replace(".py", "")}'
        yield Bar(title, seconds, limit, 's', 'at most', note)


def start(config: str, folder: Path, name: str) -> tuple[float, float]:
  """Return the seconds until the first round is logged; then stop the run.

  The second number is the processor time, which other programs do not change.
  """
  environ = {k: v for k, v in os.environ.items() if k not in UNSET}
  environ['XDG_CACHE_HOME'] = str(folder / 'cache')
  root, images = commandline.ROOT, folder / 'images'  # which does not exist
  flags = f'--workdir={folder / name}', f'--config={root}/configs/{config}'
  fields = f'--config.data_dir={images}', '--config.log_every=1'
  command = sys.executable, f'{root}/experiments/main.py', *flags, *fields
  metrics, log = folder / name / 'metrics.jsonl', folder / f'{name}.log'
  before, began = _processor_seconds(), time.perf_counter()
  with log.open('wb') as file:
    run = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
  try:
    while not (metrics.exists() and b'"round": 1,' in metrics.read_bytes()):
      if run.poll() is not None:
        raise RuntimeError(log.read_text()[-500:])
      time.sleep(PERIOD)
    seconds = time.perf_counter() - began
  finally:
    run.kill()
    run.wait()
  return seconds, _processor_seconds() - before


def _processor_seconds() -> float:
  """Return the processor time of all child processes that have ended."""
  usage = resource.getrusage(resource.RUSAGE_CHILDREN)
  return usage.ru_utime + usage.ru_stime


# ---- methods

# Work of a step that is no gradient of it, in gradients: a forward pass is a
# third. Gradients are counted by the methods, in `num_steps`.
FORWARD = 1 / 3
PASSES = {
  'moon': 2 * FORWARD,  # the global and the last local model
  'fedntd': FORWARD,  # the global model
  'fedfomo': 3 * FORWARD,  # six models on a batch of validation, for two steps
  'ifca': 2 * FORWARD,  # the models of two clusters
  'fedgh': FORWARD,  # the means of classes
  'fedtgp': FORWARD,
}


def methods(repeats: int) -> Iterator[Bar]:
  """Yield every method's round over FedAvg's, for the gradients that it takes.

  Each in turn with FedAvg, on one device.
  """
  # Two batches of a client: 36 programs take long enough to compile.
  case = MODELS['convnet4'].cases[0]._replace(devices=1, steps=2)
  data = make_clients(case, case.steps * case.batch)
  ids = np.arange(case.clients)
  fedavg = make_program(case, data, ids)

  def gradients(program):
    *_, metrics = program.run()
    return float(metrics['num_steps'].sum())

  of_fedavg = gradients(fedavg)
  for name in algorithms.available():
    program = make_program(case, data, ids, name)
    share = gradients(program) / of_fedavg * (1 + PASSES.get(name, 0))
    seconds = in_turn({name: program.run, 'fedavg': fedavg.run}, repeats)
    times = spread(ratios(seconds[name], seconds['fedavg']))
    note = f'{times.median:.2f} ({times.low:.2f} to {times.high:.2f}) x FedAvg'
    note += f', {share:.2f} x its gradients'
    yield Bar(name, times.median / share, 1.3, 'x gradients', 'at most', note)
    jax.clear_caches()


# ---- what grows: clients and memory


def scale(repeats: int) -> Iterator[Bar]:
  """Yield the growth of time and memory from 100 to 100,000 clients.

  FedAvg keeps no state for a client, only the indices of its rows in the pool,
  which all clients share. With clients_placement=device a round holds the
  indices of all clients in memory, with host those of its cohort.
  """
  fewest, *_, most = REGISTERED
  programs = {
    number: make_program(SMALL, _share_clients(number), _draw(number))
    for number in REGISTERED
  }

  def draw_and_run(number):
    _draw(number)
    programs[number].run()

  runs = {number: partial(draw_and_run, number) for number in REGISTERED}
  for run in runs.values():
    run()
  seconds = in_turn(runs, 3 * repeats)
  first, more = seconds[fewest], f'a round, {most:,} clients'
  grown = max(spread(ratios(x, first)).median for x in seconds.values())
  listed = (f'{spread(x).median:.3f} s of {n:,}' for n, x in seconds.items())
  note, unit = f'the worst of {", ".join(listed)}', f'x {fewest}'
  yield Bar(f'time of {more}', grown, 1.1, unit, 'at most', note)
  on_host = {number: _bytes_on_host(number) for number in REGISTERED}
  few, many = programs[fewest].memory, programs[most].memory
  note = (
    f'clients_placement=host: {on_host[most] / MIB:.1f} MiB of {most:,}; with '
    f'their rows on the device {few / MIB:.1f} of {fewest}, '
    f'{many / MIB:.1f} of {most:,}'
  )
  grown = max(on_host.values()) / on_host[fewest]
  yield Bar(f'memory of {more}', grown, 1.1, unit, 'at most', note)


def _draw(number: int) -> np.ndarray:
  """Return a cohort of ten, as a run samples it."""
  cohorts = sample_cohorts(jax.random.key(0), 0, 1, number, SMALL.clients)
  return np.asarray(cohorts[0])


def _bytes_on_host(number: int) -> int:
  """Return the bytes of a round with clients_placement=host."""
  data, ids = _share_clients(number), _draw(number)
  algorithm, key = make_stage(SMALL).algorithm, jax.random.key(0)
  server, cohort = algorithm.init_server(key), gather((), ids, data)
  position, shape = np.arange(len(ids)), data.index.shape
  lowered = compile_round(algorithm, None, 1).lower(
    shape, server, cohort, position, data.x, data.y, key
  )
  return program_bytes(lowered.compile())


def forecast(repeats: int) -> Iterator[Bar]:
  """Yield the largest relative error of the forecast of a round's memory."""
  del repeats  # bytes do not vary
  config = f'{commandline.ROOT}/configs/fedbabu_cifar10.py:quick'
  settings, listed, off = commandline.read_settings(config), [], []
  # The bar is about a round: half the time would go into fine-tuning.
  settings |= {'views': ('initial',), 'devices': 1}
  for model, chunk in (('simple_cnn', 1), ('simple_cnn', 2), ('convnet4', 1)):
    changes = {'model': model, 'clients_per_chunk': chunk}
    experiment = build_experiment({**settings, **changes})
    ((_, estimate),) = memory_estimate.forecasts(experiment)
    # The tests are no argument of a round.
    tests = sum(leaf.nbytes for leaf in jax.tree.leaves(experiment.test))
    program = next(make_programs(experiment, jax.devices()[:1]))
    lowered = jax.jit(program.function).lower(*program.arguments.values())
    used = program_bytes(lowered.compile())
    expected = estimate.round - tests
    off.append(100 * abs(expected / used - 1))
    sizes = f'{expected / MIB:.1f} MiB for {used / MIB:.1f}'
    listed.append(f'{model}, chunk {chunk}: {sizes}')
  name = 'forecast of memory, off by'
  yield Bar(name, max(off), 20, '%', 'at most', '; '.join(listed))


def _share_clients(number: int) -> ClientData:
  """Return so many clients, who share the images of SMALL's few."""
  few = make_clients(SMALL, SMALL.steps * SMALL.batch)
  owners = np.arange(number) % SMALL.clients
  index, count = (np.asarray(x)[owners] for x in (few.index, few.count))
  return few._replace(index=jnp.asarray(index), count=jnp.asarray(count))


BARS = {model: partial(training, model) for model in MODELS}
OTHERS = evaluation, methods, startup, scale, forecast
BARS |= {bar.__name__: bar for bar in OTHERS}
