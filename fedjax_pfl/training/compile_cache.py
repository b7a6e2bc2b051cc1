"""The store of compiled programs, so that only the first start compiles.

It is JAX's own persistent cache, in the user's cache folder beside the decoded
images; one folder for each kind of processor, because a program is compiled for
one kind. Where $JAX_COMPILATION_CACHE_DIR names a folder, that folder is used.
A failure of the cache never stops a run.
"""

import contextlib
import hashlib
import os
import platform
import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import jax

from fedjax_pfl.core.atomic_files import cache_root

LIMIT = 2**30  # bytes of all programs; those of a run are 1 to 2 MB
MIN_SECONDS = 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'
CACHE_WARNING = re.compile(
  r"Error (reading|writing) persistent compilation cache entry for '([^']+)'"
)
KIND = re.compile(r'^(?:flags|Features|model name|CPU part)\s*:(.*)$', re.M)


def cache_programs(log: Callable[[str], None]) -> None:
  """Let JAX store programs, before it compiles any; log why where it cannot."""
  if not jax.config.jax_enable_compilation_cache:  # by the user's choice
    return
  if MIN_SECONDS not in os.environ:  # many small programs take long, too
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  given = jax.config.jax_compilation_cache_dir
  if given and '://' in given:  # cloud storage, which JAX opens itself
    return
  try:
    root = cache_root() / 'programs'
    folder = Path(given) if given else root / machine()
    # A program is code: other users may not write to a folder made here.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    log(f'Compiled programs are not stored, each start compiles: {error}')
    jax.config.update('jax_compilation_cache_dir', None)
    return
  jax.config.update('jax_compilation_cache_dir', str(folder))
  if not given:
    prune(root)
    remove_damaged(folder)


def cache_unless_set() -> None:
  """Let JAX store programs, as commands do, if the caller's program does not.

  So a loop of runs compiles once: each run makes functions of its own, whose
  programs JAX finds by their content.
  """
  if not jax.config.jax_compilation_cache_dir:
    cache_programs(lambda text: None)


def machine() -> str:
  """Return a name for processors that may run each other's programs.

  The number of cores is part of it: XLA divides the work among them, and the
  order of a sum is part of a result.
  """
  try:
    lines = KIND.findall(Path('/proc/cpuinfo').read_text())
    kind = ' '.join(sorted({word for line in lines for word in line.split()}))
  except OSError:  # not Linux: what cannot be compared is not shared
    kind = f'{platform.node()} {platform.processor()}'
  state = f'{platform.machine()} {kind} {os.cpu_count()}'
  return hashlib.sha256(state.encode()).hexdigest()[:12]


def prune(root: Path, limit: int = LIMIT) -> None:
  """Remove the least recently used programs, if all exceed the limit."""
  entries = []
  for path in root.glob('*/*'):
    with contextlib.suppress(OSError):  # another process removes as well
      stat = path.stat()
      entries.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
  total = sum(size for _, size, _ in entries)
  goal = limit if total <= limit else limit // 2  # not at every start
  for _, size, path in sorted(entries):
    if total <= goal:
      return
    with contextlib.suppress(OSError):
      path.unlink()
    total -= size


def remove_damaged(folder: Path) -> None:
  """Remove damaged entries of our own cache where JAX would warn of them.

  JAX compiles, and leaves the entry that a killed process left half written
  there for the next start. A removed one is written again.
  """
  show = warnings.showwarning

  def showwarning(message, *where, **more):
    failure = CACHE_WARNING.match(str(message))
    if not failure:
      show(message, *where, **more)
    elif failure[1] == 'reading':
      for path in folder.glob(f'{failure[2]}-*'):
        path.unlink(missing_ok=True)

  warnings.showwarning = showwarning
