"""Group the runs that differ only in the seed, and name each group.

The label of a group is its method, with the settings in which it differs from
other groups of that method.
"""

import collections
import functools
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.core.user_code import without_digest
from fedjax_pfl.evaluation.measures import MEASURES, Measure
from fedjax_pfl.results.runs.run import Run, chosen_by_tests, with_defaults
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.settings import FIELDS

# Fields in which the runs of a group may differ: those that change no number,
# but not the views, which the page shows.
UNTRAINED = {name for name, field in FIELDS.items() if not field.changes}
UNTRAINED = UNTRAINED - {'views'} | {'seed', 'eval_every'}
MAX_SETTINGS = 3  # in a label; with more, it has the folder's name instead

Views = str | Sequence[str] | None  # one of all seeds, one for each, or none


class Group(NamedTuple):
  """One or more seeds of one setting: a line of the report."""

  label: str
  runs: tuple[Run, ...]
  method_number: int  # which of the methods that were met
  setting_number: int  # which of the groups of this method

  @property
  def first(self) -> Run:
    return self.runs[0]

  @property
  def settings(self) -> dict[str, Any]:
    """Return the config of the first seed as {'finetune.epochs': (5,)}."""
    return flatten(self.first.config)

  @property
  def before(self) -> str | None:
    """Return the view before personalisation, or None."""
    return self.first.compared[0]

  @property
  def after(self) -> tuple[str, ...]:
    """Return the view after personalisation of each seed.

    Validation, or the tests, may choose another of a family for every seed.
    """
    return tuple(run.compared[1] for run in self.runs)

  def accuracy(self, views: Views) -> np.ndarray | None:
    """Return the accuracy of the clients of all seeds; None without a view."""
    pairs = self._each(views)
    return views and np.concatenate([run.accuracy(view) for run, view in pairs])

  def accuracy_by_seed(self) -> dict[tuple, np.ndarray]:
    """Return {(seed, its data, K): accuracies [K] after personalisation}."""
    pairs = self._each(self.after)
    each = [(run, run.accuracy(view)) for run, view in pairs]
    return {(run.seed, run.data, len(x)): x for run, x in each}

  def client_name(self, at: int) -> str:
    """Return the name of one of the clients of all seeds."""
    ends = np.cumsum([len(run.clients.ids) for run in self.runs])
    seed = int(np.searchsorted(ends, at, side='right'))
    run = self.runs[seed]
    client = run.clients.labels[at - ends[seed]]  # counted from the last
    return f'seed {run.seed}, ' * (len(ends) > 1) + f'client {client}'

  def numbers(self, views: Views, name: str, part: str = 'views') -> np.ndarray:
    """Return a number of a view's summary for every seed, [S]; NaN if absent.

    `part` 'unseen' is that of the clients who came after training.
    """
    pairs = self._each(views)
    values = [run.summary(view, part).get(name) for run, view in pairs]
    return np.array(values, float)  # None is NaN

  def mean(self, views: Views, quantity: str) -> float:
    """Return the mean of such numbers over seeds."""
    return float(np.mean(self.numbers(views, quantity)))

  def curve(self, names: Views) -> tuple[np.ndarray, np.ndarray]:
    """Return rounds [T] that all seeds have, and numbers of metrics [S, T]."""
    curves = [run.curve(name) for run, name in self._each(names)]
    rounds = functools.reduce(np.intersect1d, (at for at, _ in curves))
    values = [numbers[np.isin(at, rounds)] for at, numbers in curves]
    return rounds, np.stack(values)

  def total(self, name: str, by: float | np.ndarray = math.inf) -> np.ndarray:
    """Return the sum of a number of the metrics by each round, of `by`.

    The mean over seeds, which may have logged other rounds; NaN: not recorded.
    """
    totals = []
    for run in self.runs:
      at, values = run.curve(name)
      sums = [0.0 if len(at) else math.nan, *np.cumsum(values)]
      totals.append(np.array(sums)[np.searchsorted(at, by, side='right')])
    return np.mean(totals, axis=0)

  def _each(self, views: Views) -> Iterator[tuple[Run, Any]]:
    """Return every run with its view."""
    is_shared = views is None or isinstance(views, str)
    each = [views] * len(self.runs) if is_shared else views
    return zip(self.runs, each, strict=True)


def compared_measures(groups: Sequence[Group]) -> list[Measure]:
  """Return the compared measures that any group has after personalisation.

  A client of few tests leaves no worst tenth.
  """
  return [
    measure
    for measure in MEASURES
    if measure.compared
    and any(
      np.isfinite(group.numbers(group.after, measure.name)).any()
      for group in groups
    )
  ]


def has_worst_tenth(groups: Sequence[Group]) -> bool:
  names = [measure.name for measure in compared_measures(groups)]
  return 'worst_decile' in names


def make_groups(runs: Sequence[Run]) -> list[Group]:
  """Return the runs in groups, in the order in which they were given."""
  alike = collections.defaultdict(list)
  for run in runs:
    key = frozenset((k, repr(v)) for k, v in trained(run.config).items())
    copies = 0
    # A run with the same seed starts another group.
    while any(run.seed == other.seed for other in alike[key, copies]):
      copies += 1
    alike[key, copies].append(run)
  sets = list(alike.values())
  met = collections.Counter()  # groups of each method
  groups = []
  for seeds, label in zip(sets, _labels(sets), strict=True):
    method = seeds[0].method
    met[method] += 1
    number = list(met).index(method)
    groups.append(Group(label, tuple(seeds), number, met[method] - 1))
  return groups


def trained(
  config: Mapping[str, Any], later: frozenset[str] = frozenset()
) -> dict[str, Any]:
  """Return the fields of a config that are not UNTRAINED.

  Each seed may begin with another run: init_from is then its method, and
  'init_from.lr' its fields, or the path where no run can be read, or where it
  is one of those that began with this one, the `later` ones.
  """
  flat = {k: v for k, v in flatten(config).items() if k not in UNTRAINED}
  if not flat.get('init_from'):
    return flat
  start = str(flat['init_from'])
  try:
    began = run_dir.load_config(start)['config']
  except (BadInput, OSError, ValueError):  # a file, or moved; a null byte
    return flat
  start = os.path.realpath(start)
  if start in later:
    return flat
  fields = trained(with_defaults(began), later | {start})
  flat['init_from'] = fields.pop('algorithm')
  return flat | {f'init_from.{k}': v for k, v in fields.items()}


def common_settings(groups: Sequence[Group]) -> dict[str, Any]:
  """Return the fields in which all runs agree, as {'finetune.epochs': (5,)}."""
  flats = [flatten(run.config) for group in groups for run in group.runs]
  is_shared = lambda pair: all(pair in flat.items() for flat in flats)
  return dict(filter(is_shared, flats[0].items()))


def without_digests(values: Sequence[Any]) -> list[Any]:
  """Return the values, 'net.py:Net' for 'net.py:Net#4f0c8e21ab37'.

  Not where the digest is all in which two of them differ.
  """

  def plain(value):
    if isinstance(value, list | tuple):
      return [plain(item) for item in value]
    return without_digest(value) if isinstance(value, str) else value

  short = [plain(value) for value in values]
  is_known = len({*map(repr, short)}) == len({*map(repr, values)})
  return short if is_known else list(values)


def views_in_words(groups: Sequence[Group]) -> str:
  """Return 'initial and finetuned', or the views of each group."""
  labels = collections.defaultdict(list)
  for group in groups:
    views = [*filter(None, [group.before]), either(group.after)]
    labels[' and '.join(views)].append(group.label)
  if len(labels) == 1:
    return next(iter(labels))
  parts = [f'{views} ({", ".join(of)})' for views, of in labels.items()]
  return '; '.join(parts)


def notes_on_choice(groups: Sequence[Group]) -> list[str]:
  """Return a sentence for every group whose views the tests have chosen."""
  notes = []
  for group in groups:
    chosen = [chosen_by_tests(run.views, run.result) for run in group.runs]
    if views := either(filter(None, chosen)):
      by_tests = 'is chosen by the tests, which is optimistic'
      notes.append(f'{views} of {group.label} {by_tests}.')
  return notes


def either(views: Iterable[str]) -> str:
  """Return 'mix_0.4 or mix_0.5', each once."""
  return ' or '.join(dict.fromkeys(views))


def _labels(sets: Sequence[list[Run]]) -> list[str]:
  """Return a label for every group; all differ."""
  labels, of_method = [], collections.defaultdict(list)
  for run, *_ in sets:
    of_method[run.method].append(trained(run.config))
  for run, *_ in sets:
    peers, changed = of_method[run.method], []
    for field, value in trained(run.config).items():
      values = [value, *(peer.get(field, value) for peer in peers)]
      if all(other == value for other in values):
        continue
      # 'mu' for 'hp.mu', unless a field of its own has that name.
      name = field.removeprefix('hp.')
      name = field if any(name in peer for peer in peers) else name
      changed.append(f'{name}={without_digests(values)[0]}')
    if len(changed) > MAX_SETTINGS or (len(peers) > 1 and not changed):
      changed = [run.path.resolve().name]
    labels.append(', '.join([paper_name(run.method), *changed]))
  return [
    label if labels.count(label) == 1 else f'{label}, {runs[0].path}'
    for label, runs in zip(labels, sets, strict=True)
  ]
