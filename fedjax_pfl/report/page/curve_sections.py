"""Accuracy against rounds, bytes and epochs of fine-tuning."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.report import finished_runs
from fedjax_pfl.report.page.charts import Series, line_sample, plot_lines
from fedjax_pfl.report.page.groups import Group, curve_of, numbers
from fedjax_pfl.report.page.sections import Key, Panel, Section
from fedjax_pfl.report.page.svg import plain

MEAN = 'mean accuracy of the clients, %'
SERVER = 'global/accuracy'  # in the metrics
ROUNDS = 'communication rounds'
FINETUNED = re.compile(r'finetuned_(\d+)')


def learning(groups: Sequence[Group]) -> Section:
  """Return accuracy over rounds and over bytes, of all evaluated views."""
  evaluated = {group.label: _evaluated(group) for group in groups}
  firsts = {label: names[0] for label, names in evaluated.items() if names}
  if not firsts:
    words = 'These runs were not evaluated during their rounds.'
    return Section('Learning', words, [])
  panels = [_over_rounds(groups, firsts), *_over_bytes(groups, firsts)]
  for name in dict.fromkeys(
    name for names in evaluated.values() for name in names
  ):
    labels = [
      label
      for label, names in evaluated.items()
      if name in names and name != firsts[label]
    ]
    if labels:
      panels.append(_over_rounds(groups, dict.fromkeys(labels, name)))
  words = 'Test accuracy while the server learns.'
  if any(len(group.runs) > 1 for group in groups):
    words += (
      ' Lines are means over seeds, bands go from the lowest to the highest.'
    )
  return Section('Learning', words, panels)


def finetuning(groups: Sequence[Group]) -> Section | None:
  """Return accuracy against epochs of fine-tuning; None for a single epoch."""
  stops = {group.label: _stops(group) for group in groups}
  chosen = [group for group in groups if len(stops[group.label]) > 2]
  if not chosen:
    return None
  panels = []
  for quantity, words in (
    ('mean', MEAN),
    ('worst_decile', 'mean accuracy of the worst tenth, %'),
  ):
    series = [
      _series(
        group,
        np.array(list(stops[group.label]), float),
        np.stack(
          [
            numbers(group, view, quantity)
            for view in stops[group.label].values()
          ],
          axis=1,
        ),  # [S, T]
      )
      for group in chosen
    ]
    title = 'Mean over clients' if quantity == 'mean' else 'Worst tenth'
    panels += _panel(title, series, 'epochs of fine-tuning', words)
  return Section(
    'Fine-tuning',
    'Test accuracy after so many epochs on the own training data; 0: the '
    'global model itself.',
    panels,
  )


def _evaluated(group: Group) -> list[str]:
  """Return the accuracies in the metrics: that of the first view first."""
  found = {name for line in group.runs[0].metrics for name in line}
  views = [*finished_runs.views(group.runs[0]), 'global']
  names = [f'{view}/accuracy' for view in views]
  names += sorted(name for name in found if name.endswith('/accuracy'))
  return [
    name
    for name in dict.fromkeys(names)
    if np.isfinite(curve_of(group, name).accuracy).any()
  ]


def _over_rounds(groups: Sequence[Group], names: Mapping[str, str]) -> Panel:
  """Draw a number of the metrics of every line that has one in `names`."""
  series = [
    _series(group, *curve_of(group, name), _view(name, names))
    for group, name in _named(groups, names)
  ]
  (panel,) = _panel(
    f'{_title(names)} over rounds', series, ROUNDS, _what(names)
  )
  return panel


def _over_bytes(
  groups: Sequence[Group], names: Mapping[str, str]
) -> list[Panel]:
  """Draw the same over the bytes that all clients have sent and received."""
  found = []
  for group, name in _named(groups, names):
    rounds, accuracy = curve_of(group, name)
    sent = _sent_until(group, rounds)
    if sent is not None and sent.any():  # not where nothing is sent
      found.append((group, sent, accuracy, _view(name, names)))
  if not found:
    return []
  largest = max(float(sent.max(initial=0)) for _, sent, *_ in found)
  unit, word = (1e9, 'GB') if largest >= 2e9 else (1e6, 'MB')
  series = [_series(group, x / unit, y, view) for group, x, y, view in found]
  title = f'{_title(names)} over bytes'
  return _panel(title, series, f'{word} sent, down and up', _what(names))


def _sent_until(group: Group, rounds: np.ndarray) -> np.ndarray | None:
  """Return the bytes up to these rounds [T]; None: not recorded."""
  run = group.runs[0]  # seeds send alike
  at, down = finished_runs.curve(run.metrics, 'bytes_down')
  _, up = finished_runs.curve(run.metrics, 'bytes_up')
  if not len(at) or len(down) != len(up):
    return None
  totals = np.concatenate([[0], np.cumsum(down + up)])
  return totals[np.searchsorted(at, rounds, side='right')]


def _stops(group: Group) -> dict[int, str]:
  """Return {epochs of fine-tuning: view}; 0 is the global model."""
  run, stops = group.runs[0], {}
  views = finished_runs.views(run)
  if 'initial' in views:
    stops[0] = 'initial'
  for view in views:
    if match := FINETUNED.fullmatch(view):
      stops[int(match[1])] = view
  last = run.config.get('finetune', {}).get('epochs')
  if last and 'finetuned' in views:
    stops[max(np.atleast_1d(last).tolist())] = 'finetuned'
  return dict(sorted(stops.items()))


def _series(
  group: Group, x: np.ndarray, values: np.ndarray, view: str = ''
) -> Series:
  """Return a line through the means of values [S, T]."""
  label = f'{group.label}, {view}' if view else group.label
  band = (values.min(0), values.max(0)) if len(values) > 1 else (None, None)
  return Series(label, group.css, group.style, x, values.mean(0), *band)


def _panel(
  title: str, series: Sequence[Series], x_label: str, y_label: str
) -> list[Panel]:
  """Return a panel of those lines that have numbers; none without any."""
  series = [line for line in series if np.isfinite(line.y).any()]
  if not series:
    return []
  keys = tuple(
    Key(line_sample(line.css, line.style), line.label, plain(line.y[-1]))
    for line in series
  )
  return [Panel(title, plot_lines(series, x_label, y_label), keys=keys)]


def _named(
  groups: Sequence[Group], names: Mapping[str, str]
) -> list[tuple[Group, str]]:
  return [
    (group, names[group.label]) for group in groups if group.label in names
  ]


def _view(name: str, names: Mapping[str, str]) -> str:
  """Return the view of a number where not all lines have that one."""
  is_common = len(set(names.values())) == 1
  return '' if is_common else name.removesuffix('/accuracy')


def _title(names: Mapping[str, str]) -> str:
  views = {name.removesuffix('/accuracy') for name in names.values()}
  if len(views) > 1:
    return 'Accuracy'
  word = {'global': 'Server'}.get(min(views), min(views).capitalize())
  return f'{word} accuracy'


def _what(names: Mapping[str, str]) -> str:
  found = {name == SERVER for name in names.values()}
  if len(found) > 1:
    return 'accuracy, %'
  return 'accuracy on the whole test set, %' if True in found else MEAN
