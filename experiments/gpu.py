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
import math
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
CONFIG = f'{commandline.ROOT}/configs/fedbabu_cifar10.py:fedavg'
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
  *('client', 'federated', 'models', 'algorithms'),
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
  done = {result['item'] for result in read(file)}
  end = time.monotonic() + 60 * MINUTES.value
  for item in itertools.chain(*(ITEMS[x](is_small) for x in PART.value)):
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
  results = []
  for line in file.read_text('utf-8').splitlines() if file.exists() else ():
    with contextlib.suppress(json.JSONDecodeError):
      results.append(json.loads(line))
  return results


def make_item(
  name: str, limit: float, script: str, *words: Any, **more: Any
) -> Item:
  """Return the item of a script in experiments/."""
  command = sys.executable, str(HERE / script), *map(str, words)
  return Item(name, command, limit, **more)


def tests(is_small: bool) -> Iterator[Item]:
  pytest = '-m', 'pytest', '-vv', '--short', '-p', 'no:cacheprovider'
  for room in TESTS[:1] if is_small else TESTS:
    command = (sys.executable, *pytest, f'tests/{room}')
    yield Item(f'tests {room}', command, 240 if is_small else 120)


def bars(is_small: bool) -> Iterator[Item]:
  """Yield ours as typed, PyTorch's forms, then what else is asked."""
  cases, limit = (SMALL, 200) if is_small else (CASES, 100)
  for case, (bar, tf32) in cases.items():
    yield of_case('ours', 'as_typed.py', case, limit, bar=bar)
    if tf32:
      more = (*case, 'tf32')
      yield of_case('ours', 'as_typed.py', more, limit, bar=tf32)
  for case, form in itertools.product(cases, FORMS):
    yield of_case(f'torch {form}', 'torch_loop.py', case, limit, form)
  first, *_ = cases
  few = {'num_clients': 10, 'max_train_examples': 1000} if is_small else {}
  fields = {**BLAZEFL, **few}.items()
  given = [CONFIG, *(f'--config.{name}={value}' for name, value in fields)]
  for start in ('first', 'second'):
    name = f'check blazefl, {start} start'
    yield make_item(name, 120, 'benchmarks/whole_run.py', *given)
  if not is_small:
    plain = of_case('ours', 'as_typed.py', first, 2 * limit)
    python, *script = plain.command
    name = f'check tuned, {plain.name}'
    yield plain._replace(name=name, command=(python, '-c', TUNED, *script))
    name = f'check while in CUDA graphs, {plain.name}'
    yield plain._replace(name=name, environ=WHILE)
    for conv_impl in ('gemm', 'fused'):  # by layers, beside each other
      more = (*first, 'float32', conv_impl)
      yield of_case('ours', 'as_typed.py', more, limit)
  much = (1, 1) if is_small else (80, 3)
  yield make_item('check precision', 240, 'benchmarks/precision.py', *much)
  much = (6, 1) * is_small
  yield make_item('check seeds', 240, 'benchmarks/many_runs.py', *much)
  limit = 240 if is_small else 280
  for name in ('forecast',) if is_small else ('startup', 'forecast'):
    bar = f'--bars={name}'
    yield make_item(f'check {name}', limit, 'bench.py', bar, '--repeats=1')


def of_case(
  name: str, script: str, case: tuple, limit: float, *first: str, **more: Any
) -> Item:
  """Return the item of rounds of a case, timed by a script."""
  more |= {'images': math.prod(case[1:4])}
  name, script = ' '.join(map(str, (name, *case))), f'benchmarks/{script}'
  return make_item(name, limit, script, *first, *case, **more)


def cells(is_small: bool) -> Iterator[Item]:
  limit = 120 if is_small else min(60 * MINUTES.value, 580)
  for table in TABLES[:1] if is_small else TABLES:
    flags = [f'--table={table}', '--workdir=results', *['--dry-run'] * is_small]
    yield make_item(f'cells {table}', limit, 'reproduce.py', *flags)


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


ITEMS = {'tests': tests, 'bars': bars, 'cells': cells}
if __name__ == '__main__':
  commandline.run(main)
