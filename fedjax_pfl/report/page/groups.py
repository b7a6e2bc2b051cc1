"""Group the runs that differ only in the seed; name and style each group.

The label of a group is its method, with the settings in which it differs from
other groups of that method.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.report import finished_runs
from fedjax_pfl.report.finished_runs import FinishedRun
from fedjax_pfl.report.plots import Change, Curve
from fedjax_pfl.report.styles import (
  DASHED,
  SOLID,
  SPARE_DASHES,
  Style,
  style_of,
)
from fedjax_pfl.runs.identity import flatten

# Fields in which the runs of a group may differ: the seed, those that change no
# number, as the settings mark them, but not the views, which the page shows.
UNTRAINED = (
  *('seed', 'data_dir', 'conv_impl', 'save_clients'),
  *('checkpoint_every', 'eval_every', 'log_every'),
  *('clients_per_chunk', 'clients_placement', 'debug', 'devices'),
  *('quick', 'tracker'),
)
MAX_SETTINGS = 3  # in a label; with more, it has the folder's name instead


Views = str | Sequence[str]  # one of all seeds, or one for each of them


class Group(NamedTuple):
  """One or more seeds of one setting: a line of the report."""

  label: str
  style: Style
  css: str  # the class of its method, which holds its colour
  runs: tuple[FinishedRun, ...]


def make_groups(runs: Sequence[FinishedRun]) -> list[Group]:
  """Return the runs in groups, in the order in which they were given."""
  found: dict[Any, list[FinishedRun]] = {}
  for run in runs:
    key, copies = _setting(run), 0
    # A run with the same seed starts another group.
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
    groups.append(Group(label, _style(method, met[method]), css, tuple(one)))
    met[method] += 1
  return groups


def seeds_of(group: Group) -> list[Any]:
  return [_seed(run) for run in group.runs]


def common_settings(groups: Sequence[Group]) -> dict[str, Any]:
  """Return the fields in which all runs agree, as {'finetune.epochs': (5,)}."""
  flats = [flatten(run.config) for group in groups for run in group.runs]
  return {
    field: value
    for field, value in flats[0].items()
    if all(field in flat and flat[field] == value for flat in flats)
  }


def before_and_after(group: Group) -> tuple[str | None, tuple[str, ...]]:
  """Return the view before personalisation, and the one after it of each seed.

  Validation, or the tests, may choose another of a family for every seed.
  """
  pairs = [finished_runs.before_and_after(run) for run in group.runs]
  return pairs[0][0], tuple(after for _, after in pairs)


def change_of(group: Group) -> Change:
  """Return the accuracy of the clients of all seeds, before and after."""
  before, after = before_and_after(group)
  name = finished_runs.either(after)
  return Change(
    None if before is None else _pooled(group, before),
    _pooled(group, after),
    (before or name, name),
  )


def numbers(group: Group, views: Views, quantity: str) -> np.ndarray:
  """Return a number of a view's summary for every seed, [S]; NaN if absent."""
  return _numbers(
    [run.result['views'].get(view, {}) for run, view in _each(group, views)],
    quantity,
  )


def numbers_of_unseen(group: Group, views: Views, quantity: str) -> np.ndarray:
  """Return the same of the clients who came after training."""
  return _numbers(
    [run.result['unseen'].get(view, {}) for run, view in _each(group, views)],
    quantity,
  )


def curve_of(group: Group, names: Views) -> Curve:
  """Return a number in the metrics [S, T], at rounds that all seeds have."""
  curves = [
    finished_runs.curve(run.metrics, name) for run, name in _each(group, names)
  ]
  rounds = curves[0][0]
  for other, _ in curves[1:]:
    rounds = np.intersect1d(rounds, other)
  values = [one[1][np.isin(one[0], rounds)] for one in curves]
  return Curve(rounds, np.stack(values))


def _numbers(summaries: list[dict[str, Any]], quantity: str) -> np.ndarray:
  values = [summary.get(quantity) for summary in summaries]
  known = [np.nan if value is None else value for value in values]
  return np.array(known, float)


def _each(group: Group, views: Views) -> Iterator[tuple[FinishedRun, str]]:
  """Return every run with its view."""
  each = [views] * len(group.runs) if isinstance(views, str) else views
  return zip(group.runs, each, strict=True)


def _pooled(group: Group, views: Views) -> np.ndarray:
  return np.concatenate(
    [finished_runs.accuracy(run, view) for run, view in _each(group, views)]
  )


def _seed(run: FinishedRun) -> Any:
  return run.config.get('seed')


def _setting(run: FinishedRun) -> str:
  flat = flatten(run.config)
  return repr(
    sorted((k, repr(v)) for k, v in flat.items() if k not in UNTRAINED)
  )


def _labels(sets: Sequence[list[FinishedRun]], methods: Sequence[str]) -> list:
  """Return a label for every group; all differ."""
  labels = []
  for one, method in zip(sets, methods, strict=True):
    peers = [
      flatten(other[0].config)
      for other, its in zip(sets, methods, strict=True)
      if its == method
    ]
    flat = flatten(one[0].config)
    words = [
      f'{_name(field, peers)}={_short(value, field, peers)}'
      for field, value in flat.items()
      if field not in UNTRAINED
      and any(peer.get(field, value) != value for peer in peers)
    ]
    name = style_of(method).name
    if len(words) > MAX_SETTINGS or (len(peers) > 1 and not words):
      words = [one[0].path.resolve().name]
    labels.append(', '.join([name, *words]))
  twice = collections.Counter(labels)
  return [
    label if twice[label] == 1 else f'{label}, {one[0].path}'
    for label, one in zip(labels, sets, strict=True)
  ]


def _name(field: str, peers: Sequence[dict[str, Any]]) -> str:
  """Return 'mu' for 'hp.mu', unless a field of its own has that name."""
  short = field.removeprefix('hp.')
  return field if any(short in peer for peer in peers) else short


def without_digests(values: Sequence[Any]) -> list[Any]:
  """Return the values, 'net.py:Net' for 'net.py:Net#4f0c8e21ab37'.

  Not where the digest is all in which two of them differ.
  """
  short = [_plain(value) for value in values]
  is_known = len({*map(repr, short)}) == len({*map(repr, values)})
  return short if is_known else list(values)


def _plain(value: Any) -> Any:
  if isinstance(value, list | tuple):
    return [_plain(one) for one in value]
  return without_digest(value) if isinstance(value, str) else value


def _short(value: Any, field: str, peers: Sequence[dict[str, Any]]) -> Any:
  return without_digests([value, *(peer.get(field) for peer in peers)])[0]


def _style(method: str, number: int) -> Style:
  """Return the style of a group; later groups of a method differ in dash."""
  first = style_of(method)
  if not number:
    return first
  spare = [
    dash for dash in (*SPARE_DASHES, SOLID, DASHED) if dash != first.dash
  ]
  return first._replace(dash=spare[(number - 1) % len(spare)])
