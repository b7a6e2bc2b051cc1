"""Checkpoints: save and restore a tree of arrays, bit for bit.

A checkpoint is the folder `<step>` with `state.npz`, the leaves, and
`checksums.json`: name, shape and dtype of every leaf, SHA-256 of both files. It
gets its name only when it is complete. Restoring compares every byte, so that a
damaged checkpoint is never used.
"""

import hashlib
import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core import atomic_files, trees, user_code
from fedjax_pfl.core.errors import bad_input, may_read
from fedjax_pfl.core.types import PyTree
from fedjax_pfl.runs.model_file import as_bits

KEEP = 2  # the newest, and one more in case the newest is damaged
CHECKSUMS = 'checksums.json'
STATE = 'state.npz'
SHOWN = 5  # leaves that a message names


def save(
  folder: Path,
  step: int,
  tree: PyTree,
  *,
  metadata: dict[str, Any] | None = None,
  keep: int = KEEP,
  mode: int = 0o666,
) -> None:
  """Save the tree as the newest checkpoint; remove all but the newest ones.

  Checkpoints of later steps are removed, too: they were damaged when the run
  was resumed from before them. `metadata` is stored with the checksums. Raises
  OSError where the disk is full.
  """
  folder.mkdir(exist_ok=True)
  atomic_files.remove_temporary(folder)
  growing = folder / f'.{step}.tmp'
  growing.mkdir()
  leaves = {name: np.asarray(leaf) for name, leaf in trees.named(tree).items()}
  assert len(leaves) == len(jax.tree.leaves(tree)), 'two leaves of one name'
  assert not any(leaf.dtype.hasobject for leaf in leaves.values())
  opener = partial(os.open, mode=mode)
  with open(growing / STATE, 'wb', opener=opener) as stream:
    np.savez(stream, *map(as_bits, leaves.values()))
    stream.flush()
    os.fsync(stream.fileno())
  kinds = {name: [str(leaf.dtype), leaf.shape] for name, leaf in leaves.items()}
  content = {'leaves': kinds, 'metadata': metadata or {}}
  content['state'] = atomic_files.sha256(growing / STATE)
  content['sha256'] = _digest(content)
  atomic_files.write_json(growing / CHECKSUMS, content, mode)
  target = folder / str(step)
  if target.exists():
    os.replace(target, folder / f'.{step}.old.tmp')
  os.replace(growing, target)
  atomic_files.sync_folder(folder)
  atomic_files.remove_temporary(folder)
  upto = [other for other in steps(folder) if other <= step]
  for other in {*steps(folder)} - {*upto[-keep:]}:
    atomic_files.remove(folder / str(other))


def read_metadata(folder: Path, step: int) -> dict[str, Any]:
  """Return the metadata of a checkpoint; {} if there is none."""
  return _read_checksums(folder / str(step))['metadata']


@may_read('run')
def steps(folder: Path) -> list[int]:
  """Return the steps that have a checkpoint, good or not, oldest first."""
  if not folder.is_dir():
    return []
  names = [path.name for path in folder.iterdir()]
  return sorted(int(name) for name in names if name.isdecimal())


def restore(
  folder: Path,
  like: PyTree | Callable[[int], PyTree],
  log: Callable[[str], None],
  ignored: str | None = None,
) -> tuple[int, PyTree] | None:
  """Return the newest undamaged checkpoint, in the structure of `like`.

  `like` may hold arrays or `jax.ShapeDtypeStruct`s. A leaf is restored as the
  kind that it has there: a jax array, a numpy array or a number. Where the
  structure depends on the step, `like` is a function of it. It may lack leaves
  whose names begin with `ignored`, all with ''; these are not restored.
  """
  damages = []
  for step in reversed(steps(folder)):
    path = folder / str(step)
    kinds, damage = _read_checked(path)
    if damage:
      damages.append(f'{step} ({damage})')
      continue
    tree = like(step) if callable(like) else like
    wanted = trees.named(tree)
    _check_structure(path, kinds, wanted, ignored)
    try:
      leaves = _read_leaves(path, kinds, wanted)
    except Exception as error:  # numpy raises a dozen kinds
      damages.append(f'{step} ({STATE} is not as {CHECKSUMS} says: {error})')
      continue
    for damaged in damages:
      log(f'Checkpoint {damaged} is damaged; continuing from {step}.')
    return step, jax.tree.unflatten(jax.tree.structure(tree), leaves)
  if damages:
    # To start again from round 0 could lose days of work.
    raise bad_input(
      'checkpoints',
      got=f'only damaged ones in {folder}: {"; ".join(damages)}',
      expected='at least one undamaged checkpoint',
      choices=[
        'delete the run directory to start anew',
        'give another --workdir',
        'put back a copy of the checkpoints',
      ],
    )
  return None


def _read_checksums(path: Path) -> dict[str, Any]:
  """Return the checksums; a ValueError if they are not as they were written."""
  sums = atomic_files.parse_object(atomic_files.read_bytes(path / CHECKSUMS))
  if _digest(sums) != sums.get('sha256'):
    raise ValueError('was changed')
  # Anyone can write checksums: what is read below is there.
  kinds, metadata = sums['leaves'], sums['metadata']
  if not isinstance(kinds, dict) or not isinstance(metadata, dict):
    raise ValueError('is of another kind')
  for kind in kinds.values():
    if not isinstance(kind, list) or [*map(type, kind)] != [str, list]:
      raise ValueError('is of another kind')
  return sums


def _digest(content: dict) -> str:
  """Return the checksum of the checksums."""
  parts = [content.get(name) for name in ('leaves', 'metadata', 'state')]
  text = json.dumps(parts, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _read_checked(path: Path) -> tuple[dict[str, list], str]:
  """Return the kinds of the leaves, and the damage: every byte is compared."""
  try:
    content = _read_checksums(path)
  except OSError:
    return {}, f'{CHECKSUMS} is missing or not readable'
  except ValueError as error:
    return {}, f'{CHECKSUMS} {error}'
  if atomic_files.sha256(path / STATE) != content['state']:
    return {}, f'{STATE} is missing, was changed or cut short'
  return content['leaves'], ''


def _check_structure(
  path: Path, kinds: dict[str, list], like: dict[str, Any], ignored: str | None
) -> None:
  """Raise if a checkpoint has other leaves than this code and config."""
  stored = {
    name: f'{dtype}{shape}'
    for name, (dtype, shape) in kinds.items()
    if name in like or ignored is None or not name.startswith(ignored)
  }
  wanted = {
    name: user_code.describe(leaf if hasattr(leaf, 'dtype') else np.array(leaf))
    for name, leaf in like.items()
  }
  differ = [
    f'{name}: {stored.get(name, "none")}, not {wanted.get(name, "none")}'
    for name in {**stored, **wanted}
    if stored.get(name) != wanted.get(name)
  ]
  if not differ:
    return
  more = f' and {len(differ) - SHOWN} more' * (len(differ) > SHOWN)
  raise bad_input(
    'checkpoint',
    got=f'{path} with {len(differ)} other leaves '
    f'({"; ".join(differ[:SHOWN])}{more})',
    expected='the state of this version of the program',
    choices=['the version that started the run', 'another --workdir'],
    cause='the run was started by another version of the code',
  )


def _read_leaves(
  path: Path, kinds: dict[str, list], wanted: dict[str, Any]
) -> list[Any]:
  """Return the leaves that are wanted, of the kinds that are described."""
  files, leaves = {name: f'arr_{at}' for at, name in enumerate(kinds)}, []
  with atomic_files.open_npz(path / STATE) as arrays:
    for name, like in wanted.items():
      dtype, shape = kinds[name]
      leaf = arrays[files[name]].view(jnp.dtype(dtype))
      if [*leaf.shape] != shape:
        raise ValueError(f'{name} is {[*leaf.shape]}')
      leaves.append(place(leaf, like))
  return leaves


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
  return jnp.array(value)
