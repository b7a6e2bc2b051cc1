"""Checkpoints: save and restore a tree of arrays, bit for bit.

A checkpoint is the folder `<step>` with `state/`, written by orbax (one array
per leaf, named by its path), and `checksums.json`: shape, dtype and SHA-256 of
every leaf, SHA-256 of every file. It gets its name only when it is complete.
Restoring compares every byte, so that a damaged checkpoint is never used.

Measured on two cores: 0.04 s to save and 0.02 s to restore 0.5 MB, 0.3 s and
0.2 s for 40 MB. `CheckpointManager` takes up to 0.02 s more and verifies
nothing.
"""

import errno
import functools
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import PyTree

KEEP = 2  # the newest, and one more in case the newest is damaged
CHECKSUMS = 'checksums.json'
LEAF_BYTES = 20_000  # that orbax writes for a leaf, besides its numbers


class _DamagedError(Exception):
  """A checkpoint differs from what was saved; the message names the file."""


@functools.cache
def _orbax():
  """Return a synchronous checkpointer; the import alone takes 0.4 s."""
  import orbax.checkpoint as ocp

  # This process only: where there are several, the others do not save.
  own = jax.process_index()
  alone = ocp.options.MultiprocessingOptions(
    primary_host=own, active_processes={own}, barrier_sync_key_prefix=f'{own}'
  )
  return ocp.Checkpointer(
    ocp.PyTreeCheckpointHandler(multiprocessing_options=alone),
    multiprocessing_options=alone,
  )


def save(
  folder: pathlib.Path,
  step: int,
  tree: PyTree,
  *,
  metadata: dict[str, Any] | None = None,
) -> None:
  """Save the tree as the newest checkpoint; remove all but the newest two.

  Checkpoints of later steps are removed, too: they were damaged when the run
  was resumed from before them. `metadata` is stored with the checksums. Raises
  OSError where the disk is full.
  """
  folder.mkdir(exist_ok=True)
  atomic_files.remove_temporary(folder)
  growing = folder / f'.{step}.tmp'
  growing.mkdir()
  leaves = {name: np.asarray(leaf) for name, leaf in _named(tree).items()}
  # orbax refuses arrays without elements; their shape is enough.
  stored = {name: leaf for name, leaf in leaves.items() if leaf.size}
  if stored:
    _write_state(growing.absolute() / 'state', stored)
  table = {name: _describe(leaf) for name, leaf in leaves.items()}
  sums = {str(p.relative_to(growing)): _sha256(p) for p in _files(growing)}
  content = {'leaves': table, 'files': sums, 'metadata': metadata or {}}
  content['sha256'] = _digest(content)
  atomic_files.write_json(growing / CHECKSUMS, content)
  target = folder / str(step)
  if target.exists():
    os.replace(target, folder / f'.{step}.old.tmp')
  os.replace(growing, target)
  atomic_files.sync_folder(folder)
  atomic_files.remove_temporary(folder)
  older = [other for other in steps(folder) if other < step]
  later = [other for other in steps(folder) if other > step]
  for other in older[: -(KEEP - 1)] + later:
    shutil.rmtree(folder / str(other))


def read_metadata(folder: pathlib.Path, step: int) -> dict[str, Any]:
  """Return the metadata of a checkpoint; {} if there is none."""
  content = json.loads((folder / str(step) / CHECKSUMS).read_bytes())
  return content['metadata']


def steps(folder: pathlib.Path) -> list[int]:
  """Return the steps that have a checkpoint, good or not, oldest first."""
  if not folder.is_dir():
    return []
  names = [path.name for path in folder.iterdir()]
  return sorted(int(name) for name in names if name.isdecimal())


def restore(
  folder: pathlib.Path,
  like: PyTree | Callable[[int], PyTree],
  log: Callable[[str], None],
  *,
  part: bool = False,
) -> tuple[int, PyTree] | None:
  """Return the newest undamaged checkpoint, in the structure of `like`.

  `like` may hold arrays or `jax.ShapeDtypeStruct`s. A leaf is restored as the
  kind that it has there: a jax array (on the same devices), a numpy array or a
  number. Where the structure depends on the step, `like` is a function of it.
  With `part` it may have fewer leaves than were saved; others are not restored.
  """
  damages = []
  for step in reversed(steps(folder)):
    wanted = like(step) if callable(like) else like
    try:
      table = _read_checked(folder / str(step))
      _check_structure(folder / str(step), table, wanted, part)
      tree = _read_tree(folder / str(step), table, wanted)
    except _DamagedError as damage:
      damages.append(f'{step} ({damage})')
      continue
    for damaged in damages:
      log(f'Checkpoint {damaged} is damaged; continuing from {step}.')
    return step, tree
  if damages:
    # To start again from round 0 could lose days of work.
    raise bad_input(
      'checkpoints',
      got=f'only damaged ones in {folder}: {"; ".join(damages)}',
      expected='at least one whole checkpoint',
      choices=[
        'delete the run directory to start anew',
        'give another --workdir',
        'put back a copy of the checkpoints',
      ],
      cause='a full disk, or files that were moved or edited',
    )
  return None


def _write_state(path: pathlib.Path, stored: dict[str, np.ndarray]) -> None:
  """Write the leaves; raise OSError where the disk is full."""
  need = sum(leaf.nbytes + LEAF_BYTES for leaf in stored.values())
  if shutil.disk_usage(path.parent).free < need:
    # Otherwise each thread of orbax would print a traceback.
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.FATAL)  # its threads log what they raise
  try:
    _orbax().save(path, stored)
  except OSError:
    raise
  except Exception as error:  # orbax and tensorstore raise a dozen kinds
    reason = str(error).partition('\n')[0][:200]
    raise OSError(errno.EIO, f'orbax: {reason}', str(path)) from error
  finally:
    logging.set_verbosity(verbosity)


def _named(tree: PyTree) -> dict[str, Any]:
  entries, _ = jax.tree_util.tree_flatten_with_path(tree)
  names = [
    jax.tree_util.keystr(path, simple=True, separator='/')
    for path, _ in entries
  ]
  assert len(set(names)) == len(names), f'two leaves of one name: {names}'
  return dict(zip(names, [leaf for _, leaf in entries], strict=True))


def _describe(leaf: np.ndarray) -> dict[str, Any]:
  return {
    'shape': list(leaf.shape),
    'dtype': str(leaf.dtype),
    # Not every dtype has a buffer interface (bfloat16 has none).
    'sha256': hashlib.sha256(leaf.tobytes()).hexdigest(),
  }


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
  return sorted(path for path in folder.rglob('*') if path.is_file())


def _sha256(path: pathlib.Path) -> str:
  return hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(content: dict) -> str:
  """Return the checksum of the checksums."""
  parts = [content[name] for name in ('leaves', 'files', 'metadata')]
  text = json.dumps(parts, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _read_checked(path: pathlib.Path) -> dict[str, dict]:
  """Return the table of leaves, after comparing the checksum of every file.

  orbax detects most damage, but its threads print tracebacks.
  """
  try:
    content = json.loads((path / CHECKSUMS).read_bytes())
    is_unchanged = _digest(content) == content['sha256']
  except (OSError, ValueError, TypeError, KeyError) as error:
    raise _DamagedError(f'{CHECKSUMS} is missing or not readable') from error
  if not is_unchanged:
    raise _DamagedError(f'{CHECKSUMS} was changed')
  for name, sum_of_saved in content['files'].items():
    try:
      if _sha256(path / name) != sum_of_saved:
        raise _DamagedError(f'{name} was changed or cut short')
    except OSError as error:
      raise _DamagedError(f'{name} is missing or not readable') from error
  return content['leaves']


def _check_structure(
  path: pathlib.Path, table: dict, like: PyTree, part: bool
) -> None:
  """Raise if a checkpoint has other leaves than this code and config."""
  stored = {name: _kind(entry) for name, entry in table.items()}
  wanted = {name: _kind_of(leaf) for name, leaf in _named(like).items()}
  if part:
    stored = {name: kind for name, kind in stored.items() if name in wanted}
  if stored == wanted:
    return
  names = [
    name
    for name in {**stored, **wanted}
    if stored.get(name) != wanted.get(name)
  ]
  listed = '; '.join(
    f'{name}: {stored.get(name, "none")}, not {wanted.get(name, "none")}'
    for name in names[:5]
  )
  more = f' and {len(names) - 5} more' if len(names) > 5 else ''
  raise bad_input(
    'checkpoint',
    got=f'{path} with {len(names)} other leaves ({listed}{more})',
    expected='the state of this version of the program',
    choices=['the version that began the run', 'another --workdir'],
    cause='the run was begun by another version of the code',
  )


def _kind(entry: dict) -> str:
  return f'{entry["dtype"]}{entry["shape"]}'


def _kind_of(leaf: Any) -> str:
  if not hasattr(leaf, 'dtype'):
    leaf = np.asarray(leaf)
  return f'{leaf.dtype}{list(leaf.shape)}'


def _read_tree(path: pathlib.Path, table: dict, like: PyTree) -> PyTree:
  stored = {}
  if any(0 not in entry['shape'] for entry in table.values()):
    try:
      stored = _orbax().restore(path.absolute() / 'state')
    except Exception as error:  # orbax and tensorstore raise a dozen kinds
      reason = str(error).partition('\n')[0][:200]
      raise _DamagedError(f'state/ is not readable: {reason}') from error
  leaves = []
  for name, leaf in _named(like).items():
    entry = table[name]
    empty = np.zeros(entry['shape'], jnp.dtype(entry['dtype']))
    value = empty if 0 in entry['shape'] else np.asarray(stored.get(name))
    if _describe(value) != entry:
      raise _DamagedError(f'the bytes of {name} are not those saved')
    leaves.append(place(value, leaf))
  return jax.tree.unflatten(jax.tree.structure(like), leaves)


def place(value: np.ndarray, like: Any) -> Any:
  """Return the value as an array or number of the kind of `like`."""
  if isinstance(like, np.ndarray | np.generic):
    # A copy: what was read may be a read-only view.
    return value[()] if isinstance(like, np.generic) else np.array(value)
  if not hasattr(like, 'dtype'):
    return value.item()
  if getattr(like, 'weak_type', False) and not value.ndim:
    # A strong type here would promote, and round, differently later.
    return jnp.asarray(value.item())
  sharding = getattr(like, 'sharding', None)
  if sharding is None or not getattr(like, 'committed', True):
    return jnp.array(value)
  return jax.device_put(jnp.array(value), sharding)
