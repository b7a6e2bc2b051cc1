"""The published numbers for a run: those of the cells whose training it is."""

from collections.abc import Iterable, Mapping
from typing import Any

from fedjax_pfl.reproduction.cells import OF_SERVER, Cell, Published
from fedjax_pfl.reproduction.plan import evaluation_of
from fedjax_pfl.reproduction.published import footnotes_of
from fedjax_pfl.reproduction.results import settings_in
from fedjax_pfl.settings import parse_config, replace, to_config
from fedjax_pfl.training import keys

PAPERS = {
  'fedbabu': 'FedBABU',
  'fedconcat': 'FedConcat',
  'superfed': 'SuPerFed',
}

# How often a run is evaluated on the way changes no printed number.
ON_THE_WAY = ('eval_every', 'eval_views', 'eval_global_model')

# (mean, std, table, footnotes)
PublishedNumber = tuple[float, float | None, str, tuple[str, ...]]


def published_for_run(
  stored: Mapping[str, Any], rounds: int, cells: Iterable[Cell]
) -> dict[str, PublishedNumber]:
  """Return {view: published number} for a run with this config.json.

  Of the cells of all tables, those of its training count: same settings but
  for the seed, and evaluated in the same way. A run that starts from another,
  was stopped, or may have had synthetic images has none.
  """
  settings = settings_in(stored)
  is_whole = rounds == settings.num_rounds
  if settings.init_from or settings.system.quick or not is_whole:
    return {}
  config = to_config(replace(settings, seed=0))
  key = keys.training_key(parse_config(config), '')
  same = {name: config[name] for name in ('algorithm', 'dataset', 'model')}
  same['init_from'] = ''
  on_the_way = {name: config[name] for name in ON_THE_WAY}
  found: dict[str, PublishedNumber] = {}
  for cell in cells:
    view = cell.reading.stored_name
    if cell.init_from or cell.reading.measure in OF_SERVER or view in found:
      continue
    if not same.items() <= cell.settings.items():
      continue
    evaluation = evaluation_of(
      cell._replace(settings={**cell.settings, **on_the_way}), 0
    )
    own = evaluation.training.identity, evaluation.key
    if own == (key, keys.evaluation_key(settings)):
      found[view] = number_of(cell.published)
  return found


def number_of(published: Published) -> PublishedNumber:
  """Return a printed number with its table and footnotes."""
  table = f'{PAPERS[published.paper]}, Table {published.table}'
  return published.mean, published.std, table, footnotes_of(published)
