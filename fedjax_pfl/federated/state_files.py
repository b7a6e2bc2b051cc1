"""States of clients on disk: a file for each leaf, and a journal.

  0.npy, 1.npy  [K, ...] leaves in their order: rows of clients who have trained
  touched.npy   [K] who they are; the first state of the others is computed when
                it is read, so that a new file is a hole
  T.npz         the journal of the checkpoint of round T: rows changed since the
                one before, as they were `before` and are `after`

Rounds change rows in memory alone. A checkpoint is a journal, then the file of
the server (runs/checkpoint.py), then the rows in the leaves. A run that was
killed at any moment continues from the checkpoint of round T: journals after T
are undone, and that of T is done again. A checkpoint thus costs what changed,
and the last but one is still there if the last is damaged.
"""

import contextlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import jax
import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.algorithm import Client
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.machine import read_ahead
from fedjax_pfl.runs.model_file import as_bits

MODE = 0o700  # of the folder: states hold what clients learned from their data


class Leaf:
  """A leaf [K, ...] of the states, of which rows are read and replaced."""

  def __init__(self, files: 'StateFiles', number: int, like: np.ndarray):
    self.shape, self.dtype, self.ndim = like.shape, like.dtype, len(like.shape)
    self._files, self._number = files, number
    self.new: dict[int, np.ndarray] = {}  # rows after the last checkpoint

  def __getitem__(self, ids: np.ndarray | slice) -> np.ndarray:
    if isinstance(ids, slice):
      ids = np.arange(self.shape[0])[ids]
    rows = self._files.read(self._number, np.asarray(ids))
    for at, client in enumerate(ids.tolist()):
      if client in self.new:
        rows[at] = self.new[client]
    return rows

  def __setitem__(self, ids: np.ndarray, rows: np.ndarray) -> None:
    self.new.update(zip(ids.tolist(), rows, strict=True))

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    return self[:].astype(dtype or self.dtype)


class StateFiles:
  """The files of a run; `clients` are its states, with a `Leaf` for each leaf.

  like: shapes of the states of K clients. first_rows: ids [n] -> the states
  [n, ...] of these clients before round 0.
  """

  def __init__(
    self,
    folder: Path,
    num_clients: int,
    like: Client,
    first_rows: Callable[[np.ndarray], Client],
  ):
    self._folder, self._first_rows = folder, first_rows
    shapes, tree = jax.tree.flatten(like)
    self._leaves = [Leaf(self, n, shape) for n, shape in enumerate(shapes)]
    self.clients = jax.tree.unflatten(tree, self._leaves)
    kinds = [(leaf.shape, _stored(leaf.dtype)) for leaf in shapes]
    self._kinds = [((num_clients,), np.dtype(bool)), *kinds]
    self._last_read: tuple[bytes, list] = b'', []

  def create(self) -> None:
    """Make the files anew: nobody has trained."""
    with atomic_files.writing(self._folder):
      if self._folder.exists():
        shutil.rmtree(self._folder)
      self._folder.mkdir(MODE)
      for path, (shape, dtype) in zip(self._paths(), self._kinds, strict=True):
        np.lib.format.open_memmap(path, 'w+', dtype, shape)
    self._open()

  def read(self, number: int, ids: np.ndarray) -> np.ndarray:
    """Return rows [n, ...] of a leaf at the last checkpoint."""
    touched, leaf = self._arrays[0][ids], self._leaves[number]
    rows = np.empty((len(ids), *leaf.shape[1:]), leaf.dtype)
    for array in self._arrays[1:] if not number else ():  # which come next
      read_ahead(array, ids[touched], ids[touched] + 1)
    rows[touched] = self._arrays[1 + number][ids[touched]].view(leaf.dtype)
    if not touched.all():
      if self._last_read[0] != ids.tobytes():  # the leaves are read in turn
        first = jax.tree.leaves(self._first_rows(ids))
        self._last_read = ids.tobytes(), [np.asarray(leaf) for leaf in first]
      rows[~touched] = self._last_read[1][number][~touched]
    return rows

  def write_journal(self, step: int) -> None:
    """Write the rows that changed since the last checkpoint."""

    def write(stream):
      with zipfile.ZipFile(stream, 'w') as archive:
        for name, array in self._changed():  # one of them is in memory
          with archive.open(f'{name}.npy', 'w', force_zip64=True) as member:
            np.lib.format.write_array(member, array)

    with atomic_files.writing(self._folder):
      atomic_files.write_with(self._journal(step), write)

  def _changed(self) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a journal, by name."""
    new = self._leaves[0].new if self._leaves else {}
    ids = np.array(sorted(new), np.int64)
    yield 'ids', ids
    yield 'after0', np.ones(len(ids), bool)
    for n, (leaf, (shape, dtype)) in enumerate(
      zip(self._leaves, self._kinds[1:], strict=True), 1
    ):
      rows = np.empty((len(ids), *shape[1:]), leaf.dtype)
      for at, client in enumerate(ids.tolist()):
        rows[at] = leaf.new[client]
      yield f'after{n}', rows.view(dtype)
    touched = self._arrays[0][ids]
    for n, array in enumerate(self._arrays):
      rows = np.zeros((len(ids), *array.shape[1:]), array.dtype)
      rows[touched] = array[ids[touched]]  # the others are holes
      yield f'before{n}', rows

  def keep_journal(self, step: int) -> None:
    """Write the rows of a journal into the leaves; remove earlier journals."""
    self._put(step, 'after')
    for leaf in self._leaves:
      leaf.new.clear()
    for other in self._journals():
      if other < step:
        self._journal(other).unlink()
    self._open()  # pages that were read are no longer counted as memory

  def go_to(self, step: int) -> None:
    """Continue from the checkpoint of this round."""
    self._open()
    later = [other for other in self._journals() if other >= step]
    if not later:
      raise self._damaged(f'without the journal of round {step}')
    with atomic_files.writing(self._folder):
      atomic_files.remove_temporary(self._folder)
    for other in reversed(later):
      self._put(other, 'after' if other == step else 'before')
      if other > step:
        self._journal(other).unlink()

  def show(self, step: int) -> None:
    """Read the states of a checkpoint, and change no file."""
    self._open()
    with self._read(step) as rows:
      for n, leaf in enumerate(self._leaves, 1):
        leaf[rows['ids']] = rows[f'after{n}'].view(leaf.dtype)

  def _put(self, step: int, when: str) -> None:
    """Write the rows of a journal into the leaves: all, however often."""
    with self._read(step) as rows, atomic_files.writing(self._folder):
      ids = rows['ids'].tolist()
      for n, (path, array) in enumerate(
        zip(self._paths(), self._arrays, strict=True)
      ):
        size = array.itemsize * int(np.prod(array.shape[1:]))
        # Not through the mapped memory: a full disk would end the process.
        with open(path, 'r+b', opener=atomic_files.open_in_place) as stream:
          for client, row in zip(ids, rows[f'{when}{n}'], strict=True):
            stream.seek(array.offset + client * size)
            stream.write(row.tobytes())
          stream.flush()
          os.fsync(stream.fileno())

  @contextlib.contextmanager
  def _read(self, step: int) -> Iterator[Mapping[str, np.ndarray]]:
    """Open a journal; its arrays are read, and checked, one by one."""
    try:
      with atomic_files.open_npz(self._journal(step)) as rows:
        yield rows
    except BadInput:
      raise
    except Exception as error:  # zipfile and numpy raise a dozen kinds
      raise self._damaged(f'with a damaged {step}.npz ({error})') from error

  def _open(self) -> None:
    """Map the leaves into memory; refuse those of other states."""
    self._arrays = []
    for path, (shape, dtype) in zip(self._paths(), self._kinds, strict=True):
      try:
        array = np.lib.format.open_memmap(path, 'r')
      except (OSError, ValueError) as error:
        raise self._damaged(f'without a readable {path.name}') from error
      if (array.shape, array.dtype) != (shape, dtype):
        raise self._damaged(f'with {path.name} of {array.dtype}{array.shape}')
      self._arrays.append(array)

  def _damaged(self, what: str) -> Exception:
    return bad_input(
      'states',
      got=f'{self._folder} {what}',
      expected='the states of clients that this run wrote',
      choices=['put back a copy of the run', 'another --workdir'],
      cause='clients_placement=disk: the checkpoints have no copy of them',
    )

  def _paths(self) -> list[Path]:
    names = ['touched', *range(len(self._leaves))]
    return [self._folder / f'{name}.npy' for name in names]

  def _journal(self, step: int) -> Path:
    return self._folder / f'{step}.npz'

  def _journals(self) -> list[int]:
    """Return the rounds that have a journal, oldest first."""
    names = [path.stem for path in self._folder.glob('*.npz')]
    return sorted(int(name) for name in names if name.isdecimal())


def _stored(dtype: np.dtype) -> np.dtype:
  """Return the dtype of the file: bfloat16 as its bits."""
  return as_bits(np.empty(0, dtype)).dtype
