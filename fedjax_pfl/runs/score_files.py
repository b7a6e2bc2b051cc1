"""scores/: the right answers of every client in each evaluation of a run.

  scores/ROUND.npz         VIEW/correct and VIEW/count [K] of every view on the
                           tests; on examples for choosing validation/VIEW/..,
                           all that was measured
  scores/ROUND.start.npz   the same of the models with which a stage begins

From these the best rounds are chosen when the run ends (evaluation/choices.py).
A checkpoint has their checksum.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.types import Scores
from fedjax_pfl.runs.client_scores import fields_of, scores_of

FOLDER = 'scores'
VALIDATION = 'validation/'  # begins the names of views on these examples


def name_of(number: int, first: int) -> str:
  """Return the name of an evaluation; `first`: rounds before its stage."""
  return f'{number}.start' if number == first else f'{number}'


def write(folder: Path, name: str, scores: Mapping[str, Scores]) -> None:
  """Write the file of one evaluation, whole or not at all."""
  arrays = {}
  for view, of_view in scores.items():
    fields = fields_of(of_view, f'{view}/')
    known = [f'{view}/correct', f'{view}/count']
    names = fields if view.startswith(VALIDATION) else known
    arrays |= {x: fields[x] for x in names if fields[x] is not None}
  with atomic_files.writing(folder):
    folder.mkdir(exist_ok=True)
    atomic_files.write_npz(folder / f'{name}.npz', arrays, compressed=True)


def correct_of(folder: Path, first: int) -> dict[str, dict[int, np.ndarray]]:
  """Return {view: {round: right answers [K]}} of the stage after `first`."""
  correct = {}
  for number, path in _files(folder):
    if number >= first and path.stem == name_of(number, first):
      for name, array in atomic_files.read_npz(path).items():
        view, _, field = name.rpartition('/')
        if field == 'correct':
          correct.setdefault(view, {})[number] = array
  return correct


def last(run: Path, part: str) -> dict[str, Scores]:
  """Return {view: scores} of the last evaluation, of names that begin so."""
  files = _files(run / FOLDER)
  arrays = atomic_files.read_npz(files[-1][1]) if files else {}
  by_view: dict[str, dict[str, np.ndarray]] = {}
  for name, array in arrays.items():
    view, _, field = name.rpartition('/')
    if view.startswith(part):
      by_view.setdefault(view.removeprefix(part), {})[field] = array
  return {view: scores_of(own, f'{view}/') for view, own in by_view.items()}


def digest(folder: Path, step: int) -> str:
  """Return the checksum of all evaluations that belong to a checkpoint."""
  content = hashlib.sha256()
  for file in _files(folder):
    if not _is_after(step, *file):
      content.update(f'{file[1].name}:{atomic_files.sha256(file[1])}'.encode())
  return content.hexdigest()


def cut(folder: Path, step: int) -> None:
  """Remove what is later than a checkpoint."""
  for file in _files(folder):
    if _is_after(step, *file):
      file[1].unlink()


def _is_after(step: int, number: int, path: Path) -> bool:
  return number > step or path.stem == name_of(step, step)


def _files(folder: Path) -> list[tuple[int, Path]]:
  """Return the files with their rounds, in order."""
  if not folder.is_dir():
    return []
  files = [(path.stem.partition('.')[0], path) for path in folder.glob('*.npz')]
  return sorted((int(word), path) for word, path in files if word.isdecimal())
