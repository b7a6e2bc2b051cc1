"""Compiled programs on disk, so that only the first start compiles.

JAX's own persistent cache, in the user's cache folder beside the decoded
images; one folder for each kind of processor, because a program is made for
the one that compiled it. Where $JAX_COMPILATION_CACHE_DIR names a folder it is
that one, as it is. Trouble with the cache never stops a run.
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

LIMIT = 2**30  # bytes of all programs; a run takes one or two million
VARIABLE = 'JAX_COMPILATION_CACHE_DIR'
LEAST_SECONDS = 'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'
TROUBLE = re.compile(
  r"Error (reading|writing) persistent compilation cache entry for '([^']+)'"
)


def keep_programs(log: Callable[[str], None]) -> None:
  """Let JAX keep what it compiles; to be called before it compiles.

  `log` is told where that is not possible.
  """
  import jax  # here: a mistyped flag should not wait for it

  if not jax.config.jax_enable_compilation_cache:  # by the user's choice
    return
  if LEAST_SECONDS not in os.environ:  # many small programs take long, too
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)
  given = jax.config.jax_compilation_cache_dir
  if given and '://' in given:  # of a cloud: JAX knows how
    return
  try:
    folder = make_given(given) if given else make_own()
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    log(f'Compiled programs are not kept, each start compiles: {error}')
  else:
    jax.config.update('jax_compilation_cache_dir', str(folder))
  warnings.showwarning = mending(given, warnings.showwarning)


def make_own() -> Path:
  """Return the folder of this machine's programs, with room in it."""
  from fedjax_pfl.core.atomic_files import cache_root

  root = cache_root() / 'programs'
  folder = root / machine()
  # A program is code: nobody else may put one here.
  folder.mkdir(mode=0o700, parents=True, exist_ok=True)
  prune(root)
  return folder


def make_given(folder: str) -> Path:
  """Return the folder of the user's choice; refuse what cannot be one."""
  from fedjax_pfl.core.errors import bad_input

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
  """Remove what was used the longest ago, if all is more than the limit."""
  entries = []
  for path in root.glob('*/*'):
    with contextlib.suppress(OSError):  # another process removes as well
      stat = path.stat()
      entries.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
  total = sum(size for _, size, _ in entries)
  if total <= limit:
    return
  for _, size, path in sorted(entries):
    if total <= limit // 2:  # room for a while
      return
    with contextlib.suppress(OSError):
      path.unlink()
    total -= size


def mending(given: str | None, show: Callable[..., None]):
  """Return warnings.showwarning without those of the cache.

  JAX warns of an entry that a killed process left half written, compiles, and
  leaves it there for the next start. Removed, it is written again. In a folder
  that was given nothing is removed.
  """
  import jax

  def showwarning(message, *where, **more):
    trouble = TROUBLE.match(str(message))
    if not trouble:
      show(message, *where, **more)
    elif trouble[1] == 'reading' and not given:
      folder = Path(jax.config.jax_compilation_cache_dir)
      for path in folder.glob(f'{trouble[2]}-*'):
        path.unlink(missing_ok=True)

  return showwarning
