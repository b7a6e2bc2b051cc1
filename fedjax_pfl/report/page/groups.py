"""Group the runs that differ only in the seed; name and style each group.

The label of a group is its method, with the settings in which it differs from
other groups of that method.
"""

import collections
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.report.charts.rows import Change
from fedjax_pfl.report.finished_runs import (
  FinishedRun,
  chosen_by_tests,
  either,
  first_and_after,
)
from fedjax_pfl.report.styles import Style, spare_dashes, style_of
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

  @property
  def first(self) -> FinishedRun:
    return self.runs[0]

  @property
  def settings(self) -> dict[str, Any]:
    """Return the config of the first seed as {'finetune.epochs': (5,)}."""
    return flatten(self.first.config)

  @property
  def before(self) -> str | None:
    """Return the view before personalisation; None for one view."""
    return first_and_after(self.first.views, self.first.result)[0]

  @property
  def after(self) -> tuple[str, ...]:
    """Return the view after personalisation of each seed.

    Validation, or the tests, may choose another of a family for every seed.
    """
    return tuple(first_and_after(run.views, run.result)[1] for run in self.runs)

  @property
  def change(self) -> Change:
    """Return the accuracy of the clients of all seeds, before and after."""
    before = None if self.before is None else self._pooled(self.before)
    return Change(self.label, self.css, before, self._pooled(self.after))

  @property
  def client_names(self) -> list[str]:
    """Return names for the clients of all seeds."""
    several = len(self.runs) > 1
    return [
      f'seed {run.seed}, client {client}' if several else f'client {client}'
      for run in self.runs
      for client in run.clients.ids
    ]

  @property
  def chosen_by_tests(self) -> list[str]:
    """Return the views of the seeds that the tests have chosen."""
    chosen = [chosen_by_tests(run.views, run.result) for run in self.runs]
    return [view for view in chosen if view]

  def numbers(
    self, views: Views | None, quantity: str, part: str = 'views'
  ) -> np.ndarray:
    """Return a number of a view's summary for every seed, [S]; NaN if absent.

    `part` 'unseen' is that of the clients who came after training.
    """
    if views is None:
      return np.full(len(self.runs), np.nan)
    values = [
      run.result[part].get(view, {}).get(quantity)
      for run, view in self._each(views)
    ]
    return np.array([np.nan if one is None else one for one in values], float)

  def mean(self, views: Views | None, quantity: str) -> float:
    """Return the mean of such numbers over seeds."""
    return float(np.mean(self.numbers(views, quantity)))

  def curve(self, names: Views) -> tuple[np.ndarray, np.ndarray]:
    """Return rounds [T] that all seeds have, and numbers of metrics [S, T]."""
    curves = [run.curve(name) for run, name in self._each(names)]
    rounds = curves[0][0]
    for other, _ in curves[1:]:
      rounds = np.intersect1d(rounds, other)
    values = [one[1][np.isin(one[0], rounds)] for one in curves]
    return rounds, np.stack(values)

  def _each(self, views: Views) -> Iterator[tuple[FinishedRun, str]]:
    """Return every run with its view."""
    each = [views] * len(self.runs) if isinstance(views, str) else views
    return zip(self.runs, each, strict=True)

  def _pooled(self, views: Views) -> np.ndarray:
    return np.concatenate(
      [run.accuracy(view) for run, view in self._each(views)]
    )


def make_groups(runs: Sequence[FinishedRun]) -> list[Group]:
  """Return the runs in groups, in the order in which they were given."""
  found: dict[Any, list[FinishedRun]] = {}
  for run in runs:
    flat = flatten(run.config).items()
    key = repr(sorted((k, repr(v)) for k, v in flat if k not in UNTRAINED))
    copies = 0
    # A run with the same seed starts another group.
    while any(run.seed == one.seed for one in found.get((key, copies), [])):
      copies += 1
    found.setdefault((key, copies), []).append(run)
  sets = list(found.values())
  css: dict[str, str] = {}
  met: collections.Counter = collections.Counter()
  groups = []
  for one, label in zip(sets, _labels(sets), strict=True):
    method = one[0].method
    css.setdefault(method, f'c{len(css)}')
    style = style_of(method)
    if met[method]:  # later groups of a method differ in dash
      spare = spare_dashes(style)
      style = style._replace(dash=spare[(met[method] - 1) % len(spare)])
    met[method] += 1
    groups.append(Group(label, style, css[method], tuple(one)))
  return groups


def common_settings(groups: Sequence[Group]) -> dict[str, Any]:
  """Return the fields in which all runs agree, as {'finetune.epochs': (5,)}."""
  flats = [flatten(run.config) for group in groups for run in group.runs]
  return {
    field: value
    for field, value in flats[0].items()
    if all(field in flat and flat[field] == value for flat in flats)
  }


def without_digests(values: Sequence[Any]) -> list[Any]:
  """Return the values, 'net.py:Net' for 'net.py:Net#4f0c8e21ab37'.

  Not where the digest is all in which two of them differ.
  """
  short = [_plain(value) for value in values]
  is_known = len({*map(repr, short)}) == len({*map(repr, values)})
  return short if is_known else list(values)


def views_in_words(groups: Sequence[Group]) -> str:
  """Return 'initial and finetuned', or the views of each group."""
  by_words: dict[str, list[str]] = {}
  for group in groups:
    name = either(group.after)
    word = name if group.before is None else f'{group.before} and {name}'
    by_words.setdefault(word, []).append(group.label)
  if len(by_words) == 1:
    return next(iter(by_words))
  return '; '.join(
    f'{word} ({", ".join(labels)})' for word, labels in by_words.items()
  )


def _labels(sets: Sequence[list[FinishedRun]]) -> list[str]:
  """Return a label for every group; all differ."""
  labels = []
  for run, *_ in sets:
    peers = [
      flatten(other.config) for other, *_ in sets if other.method == run.method
    ]
    words = [
      f'{_name(field, peers)}={_short(value, field, peers)}'
      for field, value in flatten(run.config).items()
      if field not in UNTRAINED
      and any(peer.get(field, value) != value for peer in peers)
    ]
    if len(words) > MAX_SETTINGS or (len(peers) > 1 and not words):
      words = [run.path.resolve().name]
    labels.append(', '.join([style_of(run.method).name, *words]))
  return [
    label if labels.count(label) == 1 else f'{label}, {one[0].path}'
    for label, one in zip(labels, sets, strict=True)
  ]


def _name(field: str, peers: Sequence[dict[str, Any]]) -> str:
  """Return 'mu' for 'hp.mu', unless a field of its own has that name."""
  short = field.removeprefix('hp.')
  return field if any(short in peer for peer in peers) else short


def _short(value: Any, field: str, peers: Sequence[dict[str, Any]]) -> Any:
  return without_digests([value, *(peer.get(field) for peer in peers)])[0]


def _plain(value: Any) -> Any:
  if isinstance(value, list | tuple):
    return [_plain(one) for one in value]
  return without_digest(value) if isinstance(value, str) else value
