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
from fedjax_pfl.core.errors import bad_input

LIMIT = 2**30  # bytes of all programs; those of a run are 1 to 2 MB
VARIABLE = 'JAX_COMPILATION_CACHE_DIR'
MIN_SECONDS = 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'
CACHE_WARNING = re.compile(
  r"Error (reading|writing) persistent compilation cache entry for '([^']+)'"
)


def cache_programs(log: Callable[[str], None]) -> None:
  """Let JAX store compiled programs; to be called before it compiles.

  Where that is not possible, the reason is logged.
  """
  if not jax.config.jax_enable_compilation_cache:  # by the user's choice
    return
  if MIN_SECONDS not in os.environ:  # many small programs take long, too
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  given = jax.config.jax_compilation_cache_dir
  if given and '://' in given:  # cloud storage, which JAX opens itself
    return
  try:
    folder = make_users_folder(given) if given else make_default_folder()
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    log(f'Compiled programs are not stored, each start compiles: {error}')
  else:
    jax.config.update('jax_compilation_cache_dir', str(folder))
  warnings.showwarning = remove_damaged(given, warnings.showwarning)


def make_default_folder() -> Path:
  """Return the folder of this machine's programs; old programs are removed."""
  root = cache_root() / 'programs'
  folder = root / machine()
  # A program is code: other users may not write here.
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  prune(root)
  return folder


def make_users_folder(folder: str) -> Path:
  """Return the folder of the user's choice; refuse what cannot be one."""
  try:
    Path(folder).mkdir(parents=True, exist_ok=True)
  except OSError as error:
    raise bad_input(
      VARIABLE,
      got=folder,
      expected='a folder, or a place where one can be made',
      choices=["unset it: the user's cache folder is then taken"],
      cause=f'{type(error).__name__}: {error}',
    ) from error
  return Path(folder)


def machine() -> str:
  """Return a name for processors that may run each other's programs.

  The number of cores is part of it: XLA divides the work among them, and the
  order of a sum is part of a result.
  """
  try:
    text = Path('/proc/cpuinfo').read_text()
    words = {word for line in _features(text) for word in line.split()}
    kind = ' '.join(sorted(words))
  except OSError:  # not Linux: what cannot be compared is not shared
    kind = f'{platform.node()} {platform.processor()}'
  state = f'{platform.machine()} {kind} {os.cpu_count()}'
  return hashlib.sha256(state.encode()).hexdigest()[:12]


def _features(cpuinfo: str) -> list[str]:
  return re.findall(
    r'^(?:flags|Features|model name|CPU part)\s*:(.*)$', cpuinfo, re.MULTILINE
  )


def prune(root: Path, limit: int = LIMIT) -> None:
  """Remove the least recently used programs, if all exceed the limit."""
  entries = []
  for path in root.glob('*/*'):
    with contextlib.suppress(OSError):  # another process removes as well
      stat = path.stat()
      entries.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
  total = sum(size for _, size, _ in entries)
  if total <= limit:
    return
  for _, size, path in sorted(entries):
    if total <= limit // 2:  # so that not every start removes
      return
    with contextlib.suppress(OSError):
      path.unlink()
    total -= size


def remove_damaged(given: str | None, show: Callable[..., None]):
  """Return warnings.showwarning that removes damaged entries of the cache.

  JAX warns of an entry that a killed process left half written, compiles, and
  leaves the entry there for the next start. A removed one is written again. In
  the user's own folder nothing is removed.
  """

  def showwarning(message, *where, **more):
    failure = CACHE_WARNING.match(str(message))
    if not failure:
      show(message, *where, **more)
    elif failure[1] == 'reading' and not given:
      folder = Path(jax.config.jax_compilation_cache_dir)
      for path in folder.glob(f'{failure[2]}-*'):
        path.unlink(missing_ok=True)

  return showwarning
