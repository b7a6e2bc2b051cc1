"""The published numbers, their footnotes, and those of a run.

`published.csv` holds every printed cell, `published.md` its source and how the
file was checked, `footnotes.toml` the doubts about some.
"""

import csv
import functools
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.reproduction.cells import (
  OF_ALL_TESTS,
  OF_SERVER,
  Cell,
  Published,
  field,
)
from experiments.reproduction.plan import evaluation_of
from fedjax_pfl.results.runs.run import settings_in
from fedjax_pfl.settings import parse_config, replace, to_config
from fedjax_pfl.training import keys

FILE = Path(__file__).with_name('published.csv')
FOOTNOTES = FILE.with_name('footnotes.toml')
WHOLE = ('num_clients', 'shards_per_client', 'local_epochs')
NUMBERS = {
  **dict.fromkeys(WHOLE, int),
  **dict.fromkeys(('client_fraction', 'mean', 'std'), float),
}
PAPERS = {
  'fedbabu': 'FedBABU',
  'fedconcat': 'FedConcat',
  'flamby': 'FLamby',
  'pfllib': 'PFLlib',
  'superfed': 'SuPerFed',
}
# How often a run is evaluated on the way changes no printed number.
ON_THE_WAY = ('eval_every', 'eval_views', 'eval_global_model')


class Footnote(NamedTuple):
  """A sentence about the cells whose fields, or variants, have these values."""

  where: Mapping[str, list[Any]]
  text: str


@functools.cache
def load() -> tuple[Published, ...]:
  with open(FILE, newline='') as stream:
    return tuple(map(_published, csv.DictReader(stream)))


def _published(row: dict[str, str]) -> Published:
  numbers = {
    name: kind(row[name]) if row[name] else None
    for name, kind in NUMBERS.items()
  }
  pairs = row['variant'].split(';') if row['variant'] else ()
  variant = dict(pair.split('=', 1) for pair in pairs)
  return Published(**{**row, **numbers, 'variant': variant})


@functools.cache
def load_footnotes() -> tuple[tuple[Footnote, ...], ...]:
  """Return the groups of footnotes: a cell has the first of each."""
  groups = tomllib.loads(FOOTNOTES.read_text(encoding='utf-8'))
  return tuple(
    tuple(Footnote(**note) for note in group) for group in groups.values()
  )


def footnotes_of(published: Published) -> tuple[str, ...]:
  """Return the footnotes: of each group, the first that applies."""

  def applies(note):
    fields = note.where.items()
    return all(field(published, name) in values for name, values in fields)

  first = (next(filter(applies, group), None) for group in load_footnotes())
  return tuple(note.text for note in first if note)


def published_for_run(
  stored: Mapping[str, Any], rounds: int, cells: Iterable[Cell]
) -> dict[str, tuple[float, float | None, str, tuple[str, ...]]]:
  """Return {view: (mean, std, table, footnotes)} of a run by its config.json.

  Of the cells of all tables, those of its training count: same settings but
  for the seed, and evaluated in the same way. A run that starts from another,
  was stopped, or may have had synthetic images has none.
  """
  settings = settings_in(stored)
  is_whole = rounds == settings.num_rounds
  if settings.init_from or settings.system.quick or not is_whole:
    return {}
  config = to_config(replace(settings, seed=0))
  training = keys.training_key(parse_config(config), '')
  of_run = training, keys.evaluation_key(settings)
  same = {name: config[name] for name in ('algorithm', 'dataset', 'model')}
  on_the_way = {name: config[name] for name in ON_THE_WAY}
  known = {}
  for cell in cells:
    view, printed = cell.reading.stored_name, cell.published
    not_of_clients = cell.reading.measure in (*OF_SERVER, *OF_ALL_TESTS)
    if cell.init_from or not_of_clients or view in known:
      continue
    if not same.items() <= cell.settings.items():  # a quick look
      continue
    cell = cell._replace(settings={**cell.settings, **on_the_way})
    evaluation = evaluation_of(cell, 0)
    if (evaluation.training.identity, evaluation.key) == of_run:
      table = f'{PAPERS[printed.paper]}, Table {printed.table}'
      notes = footnotes_of(printed)
      known[view] = printed.mean, printed.std, table, notes
  return known
