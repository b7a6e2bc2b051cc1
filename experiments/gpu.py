"""Ask a GPU what no count can say: tests, bars, cells (make gpu).

  python experiments/gpu.py --part=tests              ten minutes
  python experiments/gpu.py --part=bars --match=ours  ten minutes each, too:
  python experiments/gpu.py --part=bars --match=torch    --match=check
  python experiments/gpu.py --part=cells --minutes=10

Every item is a process of its own that is ended after its limit, so that one
that does not compile costs its line alone. A result is a line of JSON in
--results; an item that has one is not asked again, so the command can be
stopped and typed again. On a CPU the items are small, five minutes in all.
"""

import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import commandline
from absl import flags

PARTS = ('tests', 'bars', 'cells')
PART = flags.DEFINE_list('part', [*PARTS], ', '.join(PARTS))
MATCH = flags.DEFINE_string('match', '', 'only items with this in their name')
MINUTES = flags.DEFINE_float('minutes', 10, 'begin no item after so many', 0)
RESULTS = flags.DEFINE_string('results', 'gpu.jsonl', 'the file of results')

HERE = commandline.ROOT / 'experiments'
ROUNDS = 6  # the first is compiled
# Model, clients, batches, batch size, momentum: docs/performance.md, "On one
# H100"; then the bar in thousand images/s in float32, and in TF32.
CASES = {
  ('convnet4', 10, 10, 50, 0.9): (220, 300),
  ('convnet4', 100, 10, 10, 0.9): (260, None),
  ('simple_cnn', 40, 10, 64, 0.9): (1500, None),
  ('superfed_cnn', 10, 25, 20, 0.9): (200, None),
  ('mobilenet', 10, 5, 50, 0.9): (55, 80),
  ('resnet18', 10, 4, 50, 0.9): (8, 17),
}
SMALL = {('simple_cnn', 2, 2, 16, 0.9): (None, None)}
# BlazeFL's benchmark, a whole run that evaluates the server's model after each
# round: 30 s of an H100 with 16 threads, read off their figure; bar: 6 s.
BLAZEFL = {
  'quick': True,  # where CIFAR-10 is not there, images of its shape
  'model': 'simple_cnn',
  'client_fraction': 1.0,
  'shards_per_client': 2,
  'rounds': 5,
  'local_epochs': 5,
  'momentum': 0.0,
  'lr_milestones': (),
  'eval_every': 1,
  'eval_global_model': True,
  'eval_views': (),
  'views': ('initial',),
}
FORMS = ('eager', 'channels_last', 'compiled', 'graph', 'streams')
TESTS = (
  'client',
  'federated',
  'models',
  'algorithms',
  'training/resume_test.py',
)
# By worth: cells of claims that are open, on a data set that fits a GPU.
TABLES = ('superfed/1', 'fedconcat/1', 'fedbabu/13')
WHILE = {'XLA_FLAGS': '--xla_gpu_enable_command_buffer=+WHILE'}
TUNED = """import runpy, sys
from fedjax_pfl.core import target
target.UNTUNED.clear()
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')"""


class Item(NamedTuple):
  """A question: its command, and how its output is read."""

  name: str
  command: tuple[str, ...]
  limit: float  # seconds
  images: int = 0  # of a round, if the output are seconds of rounds
  bar: float | None = None  # thousand images/s; seconds if there are no images
  environ: dict[str, str] = {}  # noqa: RUF012


def main():
  os.chdir(commandline.ROOT)
  is_small = not has_gpu()
  if is_small:
    print('No GPU here: all parts on the CPU, in a small form.')
  file = Path(RESULTS.value)
  done = {one['item'] for one in read(file)}
  end = time.monotonic() + 60 * MINUTES.value
  for item in itertools.chain(*(items_of(one, is_small) for one in PART.value)):
    if item.name in done or MATCH.value not in item.name:
      continue
    if time.monotonic() > end:
      print(f'{MINUTES.value:g} minutes are over; type it again for the rest.')
      return
    result = {'item': item.name, **ask(item)}
    with file.open('a', encoding='utf-8') as lines:
      print(json.dumps(result), file=lines)
    print(json.dumps(result), flush=True)


def has_gpu() -> bool:
  """Return whether jax finds one; asked of a process, for it takes memory."""
  code = 'import jax; print(jax.default_backend())'
  asked = (sys.executable, '-c', code)
  return subprocess.run(asked, capture_output=True).stdout.strip() == b'gpu'


def read(file: Path) -> list[dict[str, Any]]:
  """Return the results of a file; a line that was cut off is asked again."""
  found = []
  for line in file.read_text('utf-8').splitlines() if file.exists() else ():
    with contextlib.suppress(json.JSONDecodeError):
      found.append(json.loads(line))
  return found


def items_of(part: str, is_small: bool) -> Iterator[Item]:
  """Yield the items of a part, the most telling first."""
  yield from {'tests': tests, 'bars': bars, 'cells': cells}[part](is_small)


def tests(is_small: bool) -> Iterator[Item]:
  for room in TESTS[:1] if is_small else TESTS:
    how = ('-m', 'pytest', '-vv', '--short', '-p', 'no:cacheprovider')
    command = (sys.executable, *how, f'tests/{room}')
    yield Item(f'tests {room}', command, 240 if is_small else 120)


def bars(is_small: bool) -> Iterator[Item]:
  """Yield ours as typed, PyTorch's forms, then what else is asked."""
  cases, limit = (SMALL, 200) if is_small else (CASES, 100)
  for case, (bar, tf32) in cases.items():
    yield ours(case, limit, bar)
    if tf32:
      yield ours((*case, 'tf32'), limit, tf32)
  for case, form in itertools.product(cases, FORMS):
    words, script = [*map(str, case)], HERE / 'benchmarks/torch_loop.py'
    name = f'torch {form} {" ".join(words)}'
    command = (sys.executable, str(script), form, *words)
    yield Item(name, command, limit, images_of(case))
  first, *_ = cases
  for start in ('first', 'second'):
    yield blazefl(start, is_small)
  for what, command, environ in (
    ('tuned', (sys.executable, '-c', TUNED), {}),
    ('while in CUDA graphs', (sys.executable,), WHILE),
  ):
    plain = ours(first, 2 * limit)
    own = (*command, *plain.command[1:])
    if not is_small:
      yield plain._replace(
        name=f'check {what}, {plain.name}', command=own, environ=environ
      )
  if not is_small:  # by layers: gemm, fused, pallas beside each other
    for how in ('gemm', 'fused', 'pallas'):
      yield ours((*first, 'float32', how), limit)
  script, much = HERE / 'benchmarks/precision.py', '1 1' if is_small else '80 3'
  command = sys.executable, str(script), *much.split()
  yield Item('check precision', command, 240)
  yield from many_runs(is_small)
  for name in ('forecast',) if is_small else ('startup', 'forecast'):
    bench = (sys.executable, str(HERE / 'bench.py'), f'--bars={name}')
    yield Item(
      f'check {name}', (*bench, '--repeats=1'), 240 if is_small else 280
    )


def many_runs(is_small: bool) -> Iterator[Item]:
  """Yield a sweep's trainings an hour: one by one, and side by side."""
  script, much = HERE / 'benchmarks/many_runs.py', ('6', '1') * is_small
  for width in ('1', '2') if is_small else ('1', '8', 'auto'):
    command = sys.executable, str(script), width, *much
    yield Item(f'check seeds side by side, {width}', command, 240)


def ours(case: tuple, limit: float, bar: float | None = None) -> Item:
  words, script = [*map(str, case)], str(HERE / 'benchmarks/as_typed.py')
  name = f'ours {" ".join(words)}'
  return Item(
    name, (sys.executable, script, *words), limit, images_of(case), bar
  )


def blazefl(start: str, is_small: bool) -> Item:
  few = {'num_clients': 10, 'max_train_examples': 1000} if is_small else {}
  fields = {**BLAZEFL, **few}.items()
  script, config = 'benchmarks/whole_run.py', 'fedbabu_cifar10.py:fedavg'
  given = [f'--config.{name}={value}' for name, value in fields]
  command = str(HERE / script), f'{commandline.ROOT}/configs/{config}', *given
  return Item(f'check blazefl, {start} start', (sys.executable, *command), 120)


def images_of(case: tuple) -> int:
  clients, steps, batch = case[1:4]
  return clients * steps * batch


def cells(is_small: bool) -> Iterator[Item]:
  script, left = str(HERE / 'reproduce.py'), 60 * MINUTES.value
  for table in TABLES[:1] if is_small else TABLES:
    command = sys.executable, script, f'--table={table}', '--workdir=results'
    command += ('--dry-run',) * is_small
    yield Item(f'cells {table}', command, 120 if is_small else min(left, 580))


def ask(item: Item) -> dict[str, Any]:
  """Return what an item says within its limit."""
  if item.name.startswith('torch') and find_spec('torch') is None:
    return {'ok': False, 'why': 'PyTorch is not installed'}
  began = time.monotonic()
  process = subprocess.Popen(
    item.command,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
    env={**os.environ, 'PYTHONPATH': str(commandline.ROOT), **item.environ},
    start_new_session=True,  # ends with all that it starts
  )
  try:
    text, _ = process.communicate('\n' * ROUNDS, timeout=item.limit)
  except subprocess.TimeoutExpired:
    os.killpg(process.pid, signal.SIGKILL)
    text, _ = process.communicate()
  except BaseException:  # stopped: nothing may keep the GPU
    os.killpg(process.pid, signal.SIGKILL)
    raise
  took = time.monotonic() - began
  ok = process.returncode == 0
  return {'ok': ok, 'took': round(took, 1), **meaning(item, text, ok)}


def meaning(item: Item, text: str, ok: bool) -> dict[str, Any]:
  """Return what the output of an item says."""
  lines = text.strip().splitlines()
  if item.name.startswith('tests'):
    failed = [line.split()[0] for line in lines if ' FAILED' in line]
    passed = sum(' PASSED' in line for line in lines)
    return {'passed': passed, 'failed': failed, 'last': lines[-1:]}
  if not item.images:
    return {'lines': lines[-12:]}
  seconds = []
  for line in lines:
    with contextlib.suppress(ValueError):
      seconds.append(float(line))
  if len(seconds) < 2:
    return {'ok': False, 'seconds': seconds, 'lines': lines[-3:]}
  rate = item.images / statistics.median(seconds[1:])
  met = None if item.bar is None else rate >= 1000 * item.bar
  return {'images_per_second': round(rate), 'met': met, 'seconds': seconds}


if __name__ == '__main__':
  commandline.run(main)
