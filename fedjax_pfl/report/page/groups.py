"""Runs that differ in the seed alone are one line of a report.

And what a line is called: its method, with the settings in which it differs
from other lines of that method.
"""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.report import reading
from fedjax_pfl.report.names import DASHED, SOLID, SPARE_DASHES, Look, look
from fedjax_pfl.report.plots import Change, Curve
from fedjax_pfl.report.reading import Finished
from fedjax_pfl.runs.identity import flatten

# Fields that say where or how often, and not what is trained.
ASIDE = (
  *(
    'seed',
    'data_dir',
    'clients_per_chunk',
    'devices',
    'conv_impl',
    'debug',
    'save_clients',
  ),
  *('log_every', 'eval_every', 'checkpoint_every'),
)
MOST_WORDS = 3  # a label with more settings is not read; the folder's name is


class Group(NamedTuple):
  """A line of the report: one or more seeds of one setting."""

  label: str
  look: Look
  css: str  # the class of its method, which holds its colour
  runs: tuple[Finished, ...]


def make_groups(runs: Sequence[Finished]) -> list[Group]:
  """Return the runs in groups, in the order in which they were given."""
  found: dict[Any, list[Finished]] = {}
  for run in runs:
    key, copies = _setting(run), 0
    # The same seed twice is no second seed.
    while any(_seed(run) == _seed(one) for one in found.get((key, copies), [])):
      copies += 1
    found.setdefault((key, copies), []).append(run)
  sets = list(found.values())
  methods = [one[0].result['algorithm'] for one in sets]
  labels = _labels(sets, methods)
  order = list(dict.fromkeys(methods))
  met: collections.Counter = collections.Counter()
  groups = []
  for one, label, method in zip(sets, labels, methods, strict=True):
    css = f'c{order.index(method)}'
    groups.append(Group(label, _look(method, met[method]), css, tuple(one)))
    met[method] += 1
  return groups


def seeds(group: Group) -> list[Any]:
  return [_seed(run) for run in group.runs]


def common_settings(groups: Sequence[Group]) -> dict[str, Any]:
  """Return the fields in which all runs agree, as {'finetune.epochs': (5,)}."""
  flats = [flatten(run.config) for group in groups for run in group.runs]
  return {
    field: value
    for field, value in flats[0].items()
    if all(field in flat and flat[field] == value for flat in flats)
  }


def change(group: Group) -> Change:
  """Return the accuracy of the clients of all seeds, before and after."""
  before, after = reading.before_and_after(group.runs[0])
  return Change(
    None if before is None else _pooled(group, before),
    _pooled(group, after),
    (before or after, after),
  )


def numbers(group: Group, view: str, quantity: str) -> np.ndarray:
  """Return a number of a view's summary for every seed, [S]; NaN: not there."""
  summaries = [run.result['views'].get(view, {}) for run in group.runs]
  values = [summary.get(quantity) for summary in summaries]
  return np.array([np.nan if one is None else one for one in values], float)


def curve(group: Group, name: str) -> Curve:
  """Return a number of the metrics of all seeds, [S, T], where all have it."""
  curves = [reading.curve(run.metrics, name) for run in group.runs]
  rounds = curves[0][0]
  for other, _ in curves[1:]:
    rounds = np.intersect1d(rounds, other)
  values = [one[1][np.isin(one[0], rounds)] for one in curves]
  return Curve(rounds, np.stack(values))


def _pooled(group: Group, view: str) -> np.ndarray:
  return np.concatenate([reading.accuracy(run, view) for run in group.runs])


def _seed(run: Finished) -> Any:
  return run.config.get('seed')


def _setting(run: Finished) -> str:
  flat = flatten(run.config)
  return repr(sorted((k, repr(v)) for k, v in flat.items() if k not in ASIDE))


def _labels(sets: Sequence[list[Finished]], methods: Sequence[str]) -> list:
  """Return names of lines, each its own."""
  labels = []
  for one, method in zip(sets, methods, strict=True):
    peers = [
      flatten(other[0].config)
      for other, its in zip(sets, methods, strict=True)
      if its == method
    ]
    flat = flatten(one[0].config)
    words = [
      f'{field.rpartition(".")[2]}={value}'
      for field, value in flat.items()
      if field not in ASIDE
      and any(peer.get(field, value) != value for peer in peers)
    ]
    name = look(method).name
    if len(words) > MOST_WORDS or (len(peers) > 1 and not words):
      words = [one[0].path.resolve().name]
    labels.append(', '.join([name, *words]))
  twice = collections.Counter(labels)
  return [
    label if twice[label] == 1 else f'{label}, {one[0].path}'
    for label, one in zip(labels, sets, strict=True)
  ]


def _look(method: str, number: int) -> Look:
  """Return the look of a method's line; later ones have another dash."""
  first = look(method)
  if not number:
    return first
  spare = [
    dash for dash in (*SPARE_DASHES, SOLID, DASHED) if dash != first.dash
  ]
  return first._replace(dash=spare[(number - 1) % len(spare)])
