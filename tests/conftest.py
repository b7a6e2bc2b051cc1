"""Options and settings of the whole suite."""

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, and no file that remembers them. The first
# example of a property may compile for seconds.
settings.register_profile(
  'short',
  max_examples=8,
  derandomize=True,
  deadline=None,
  database=None,
  suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
  'long', settings.get_profile('short'), max_examples=400
)
LONGEST = ('contract_test.py', 'golden_cases_test.py')
DEFAULT_GOLDENS = Path(__file__).parent / 'golden_cases' / 'data'


def is_worker():
  return 'PYTEST_XDIST_WORKER' in os.environ


def pytest_addoption(parser):
  parser.addoption(
    '--goldens',
    type=Path,
    default=DEFAULT_GOLDENS,
    help='folder of golden cases (default: tests/golden_cases/data)',
  )
  parser.addoption(
    '--short',
    action='store_true',
    help='leave out what is marked long: most golden cases, most loops; '
    'properties have 8 examples, else 400',
  )


def pytest_configure(config):
  """Let XLA compile quickly.

  The tests spend most of their time on compiling small programs once. Programs
  that tests start have the same flags, and find what is compiled. The process
  that only waits for those that test needs no jax.
  """
  config.addinivalue_line('markers', 'long: left out with --short')
  if config.getoption('numprocesses', None) and not is_worker():
    return
  import jax
  from compiler import QUICK

  # What was traced lives long: Python need not look through it all the time.
  gc.set_threshold(200_000, 50, 100)
  if not config.getoption('--hypothesis-profile'):
    settings.load_profile('short' if config.getoption('--short') else 'long')
  jax.config.update('jax_num_cpu_devices', 1)  # tests of meshes simulate more
  # Programs do not say who called what they compute: a twentieth of the time.
  jax.config.update('jax_traceback_in_locations_limit', 0)
  os.environ['XLA_FLAGS'] = f'{os.environ.get("XLA_FLAGS", "")} {QUICK}'


def pytest_sessionfinish():
  """Let a process that tests end in peace.

  Its last garbage collections look through all that was traced. After 5 seconds
  of them execnet sends it an interrupt, which is no failure of a test: raised
  in jax's callback for such collections, it was a traceback on the screen.
  """
  if is_worker():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()


def pytest_collection_modifyitems(config, items):
  """Begin with the longest files: no process then waits for another's."""
  if config.getoption('--short'):
    left_out = [item for item in items if item.get_closest_marker('long')]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
  items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope='session', autouse=True)
def compilation_cache(tmp_path_factory):
  """Compile equal programs of different tests once."""
  folder = tmp_path_factory.getbasetemp()
  import jax

  if is_worker():
    folder = folder.parent  # one for all workers
  jax.config.update('jax_compilation_cache_dir', str(folder / 'compiled'))
  # For commands that tests start: the user's own folder is none of theirs.
  os.environ['JAX_COMPILATION_CACHE_DIR'] = str(folder / 'compiled')
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)


@pytest.fixture
def compiled():
  """Return a list that grows by the name of every program compiled."""
  from compiler import counting

  with counting() as names:
    yield names


@pytest.fixture(scope='session')
def accounting():
  """Load the library of budgets for the tests that ask: it takes seconds."""
  pytest.importorskip('dp_accounting')


@pytest.fixture
def float64():
  """Compute with 64 bits: rounding is then far below any mistake."""
  import jax

  with jax.enable_x64(True):
    yield


@pytest.fixture(scope='module')
def quick_compiler():
  """Compile quickly rather than well: for programs that run milliseconds."""
  import jax
  from helpers import round_of

  jax.config.update('jax_disable_most_optimizations', True)
  yield
  jax.config.update('jax_disable_most_optimizations', False)
  round_of.cache_clear()  # programs of other files are not used again
