"""Our numbers of the cells of a claim, from a folder of results.

Nothing is written there. No images are needed: a fingerprint of the data that a
row of the summary has is that of a cell if the key of the cell's training, with
it, is that of the row.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.reproduction.cells import Cell, Reading
from fedjax_pfl.reproduction.claims.intervals import Number
from fedjax_pfl.reproduction.comparison.our_numbers import (
  number_of,
  number_of_row,
  row_of,
)
from fedjax_pfl.reproduction.execution.evaluate_again import OF_SERVER
from fedjax_pfl.reproduction.execution.execute import (
  Workspace,
  diverged_of,
  find,
  open_workspace,
)
from fedjax_pfl.reproduction.output import kept_rows
from fedjax_pfl.reproduction.output.run_summary import Row, summary_rows
from fedjax_pfl.reproduction.planning.plan import Evaluation, evaluation_of
from fedjax_pfl.reproduction.write_results import SUMMARY
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import Settings

BEST = ':best'  # after the name of a family of views
BEST_VIEW = 'test_best_view'  # in result.json


class Source(NamedTuple):
  """What was run, by its keys."""

  workspace: Workspace
  rows: Mapping[tuple[str, str], Row]  # of the summary, by key and view
  of_training: Mapping[str, Row]  # any row of a training, by its key
  data: Mapping[int, Sequence[str]]  # fingerprints that a seed was run with


class Measured(NamedTuple):
  """Our number of a cell with one seed, and where it is from."""

  number: Number
  row: Row  # of summary.csv: command, commit, machine, seconds
  view: str  # that was read
  key: str  # of the training
  run: pathlib.Path | None  # None: only the row is left


def open_source(
  folder: pathlib.Path,
  configs: Mapping[str, Settings],
  log: Callable[[str], None],
) -> Source:
  """Return what a folder of results holds; a damaged run is refused."""
  old = kept_rows.read_csv(folder / SUMMARY)
  workspace = open_workspace(folder)
  rows = summary_rows(workspace.results, configs, runs=workspace.found)
  rows = kept_rows.with_kept(rows, old, log)
  of_training = {row['key'].partition('_')[0]: row for row in rows}
  return Source(
    workspace,
    kept_rows.by_identity(rows),
    of_training,
    _fingerprints(rows, workspace),
  )


def seeds_of(source: Source) -> list[int]:
  """Return all seeds that were run, or begun."""
  return sorted(source.data)


def measure(cell: Cell, seed: int, source: Source) -> Measured | None:
  """Return our number of a cell; None if it was not run, or diverged."""
  evaluation = _evaluation(cell, seed, source)
  if evaluation is None:
    return None
  key = evaluation.training.key
  run = source.workspace.found.get(key)
  reading = _chosen(cell.reading, run)
  if reading is None:
    return None
  row = source.of_training[key]
  found = find(source.workspace.results, evaluation, reading)
  kept = row_of(evaluation, reading, source.rows)
  if found:
    clients = None
    if reading.measure not in OF_SERVER:
      clients = accuracies(found.scores, found.train_count)
    number = Number(1, *number_of(found, reading), clients)
  elif kept is not None:
    number = Number(1, *number_of_row(kept))
  else:
    return None
  return Measured(
    number._replace(data=row['data']), row, reading.view, key, run
  )


def diverged(cell: Cell, seed: int, source: Source) -> bool:
  """Return whether the training of a cell diverged."""
  return any(
    diverged_of(
      evaluation_of(cell, seed, _constant(data)).training, source.workspace
    )
    for data in source.data[seed]
  )


def _evaluation(cell: Cell, seed: int, source: Source) -> Evaluation | None:
  """Return the evaluation of a cell, if its training was run."""
  for data in source.data[seed]:
    evaluation = evaluation_of(cell, seed, _constant(data))
    if evaluation.training.key in source.of_training:
      return evaluation
  return None


def _fingerprints(
  rows: Sequence[Row], workspace: Workspace
) -> dict[int, list[str]]:
  """Return {seed: fingerprints}; of runs that did not end, too."""
  known = {(int(row['seed']), row['data']) for row in rows}
  for path in workspace.found.values():
    stored = run_dir.load_config(path)
    data = stored['data'].partition('+')[0]
    known.add((int(stored['config']['seed']), data))
  return {
    seed: sorted(data for other, data in known if other == seed)
    for seed, _ in known
  }


def _constant(data: str) -> Callable[[Settings], str]:
  return lambda settings: data


def _chosen(reading: Reading, run: pathlib.Path | None) -> Reading | None:
  """Return the reading; of a family of views, that of its best one."""
  family, is_best, _ = reading.view.partition(BEST)
  if not is_best:
    return reading
  if run is None:
    return None
  best = run_dir.load_result(run).get(BEST_VIEW, {}).get(family)
  return reading._replace(view=best['together']['view']) if best else None
