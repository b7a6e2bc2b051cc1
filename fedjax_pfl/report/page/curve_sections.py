"""Accuracy against rounds, bytes and epochs of fine-tuning."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.report.charts import panels
from fedjax_pfl.report.charts.lines import Series
from fedjax_pfl.report.charts.panels import Panel, Section
from fedjax_pfl.report.page.groups import Group

MEAN = 'mean accuracy of the clients, %'
SERVER = 'global/accuracy'  # in the metrics
ACCURACY = '/accuracy'  # after a view, in the metrics
ROUNDS = 'communication rounds'
FINETUNED = re.compile(r'finetuned_(\d+)')


def learning(groups: Sequence[Group]) -> Section:
  """Return accuracy over rounds and over bytes, of all evaluated views."""
  evaluated = {group.label: _evaluated(group) for group in groups}
  firsts = {label: names[0] for label, names in evaluated.items() if names}
  if not firsts:
    words = 'These runs were not evaluated during their rounds.'
    return Section('Learning', words, [])
  figures = [*_over_rounds(groups, firsts), *_over_bytes(groups, firsts)]
  known = [name for names in evaluated.values() for name in names]
  for name in dict.fromkeys(known):
    others = {
      label: name
      for label, names in evaluated.items()
      if name in names and name != firsts[label]
    }
    figures += _over_rounds(groups, others)
  words = 'Test accuracy while the server learns.'
  if any(len(group.runs) > 1 for group in groups):
    words += (
      ' Lines are means over seeds, bands go from the lowest to the highest.'
    )
  return Section('Learning', words, figures)


def finetuning(groups: Sequence[Group]) -> Section | None:
  """Return accuracy against epochs of fine-tuning; None for a single epoch."""
  stops = [(group, _stops(group)) for group in groups]
  stops = [(group, one) for group, one in stops if len(one) > 2]
  if not stops:
    return None
  figures = []
  for title, quantity, words in (
    ('Mean over clients', 'mean', MEAN),
    ('Worst tenth', 'worst_decile', 'mean accuracy of the worst tenth, %'),
  ):
    lines = [
      series(
        group,
        np.array(list(one), float),
        np.stack([group.numbers(view, quantity) for view in one.values()], 1),
      )
      for group, one in stops
    ]
    figures += panels.curves(title, lines, 'epochs of fine-tuning', words)
  return Section(
    'Fine-tuning',
    'Test accuracy after so many epochs on the own training data; 0: the '
    'global model itself.',
    figures,
  )


def series(
  group: Group, x: np.ndarray, values: np.ndarray, view: str = ''
) -> Series:
  """Return a line through the means of values [S, T]."""
  label = f'{group.label}, {view}' if view else group.label
  band = (values.min(0), values.max(0)) if len(values) > 1 else (None, None)
  return Series(label, group.css, group.style, x, values.mean(0), *band)


def _evaluated(group: Group) -> list[str]:
  """Return the accuracies in the metrics: that of the first view first."""
  names = [f'{view}{ACCURACY}' for view in [*group.first.views, 'global']]
  logged = sorted(group.first.logged())
  names += [name for name in logged if name.endswith(ACCURACY)]
  return [
    name
    for name in dict.fromkeys(names)
    if np.isfinite(group.curve(name)[1]).any()
  ]


def _over_rounds(
  groups: Sequence[Group], names: Mapping[str, str]
) -> list[Panel]:
  """Draw a number of the metrics of every line that has one in `names`."""
  lines = [
    (group, *group.curve(names[group.label]))
    for group in groups
    if group.label in names
  ]
  return _curves(lines, names, 'rounds', ROUNDS)


def _over_bytes(
  groups: Sequence[Group], names: Mapping[str, str]
) -> list[Panel]:
  """Draw the same over the bytes that all clients have sent and received."""
  lines = []
  for group in groups:
    if group.label in names:
      rounds, accuracy = group.curve(names[group.label])
      lines.append((group, _sent_until(group, rounds), accuracy))
  lines = [line for line in lines if line[1].any()]  # where anything is sent
  largest = max((float(sent.max()) for _, sent, _ in lines), default=0)
  unit, word = (1e9, 'GB') if largest >= 2e9 else (1e6, 'MB')
  lines = [(group, sent / unit, accuracy) for group, sent, accuracy in lines]
  return _curves(lines, names, 'bytes', f'{word} sent, down and up')


def _sent_until(group: Group, rounds: np.ndarray) -> np.ndarray:
  """Return the bytes up to these rounds [T]; zeros: not recorded."""
  at, down = group.first.curve('bytes_down')  # seeds send alike
  _, up = group.first.curve('bytes_up')
  if not len(at) or len(down) != len(up):
    return np.zeros(len(rounds))
  totals = np.concatenate([[0], np.cumsum(down + up)])
  return totals[np.searchsorted(at, rounds, side='right')]


def _curves(
  lines: Sequence[tuple[Group, np.ndarray, np.ndarray]],
  names: Mapping[str, str],
  over: str,
  x_label: str,
) -> list[Panel]:
  """Return the chart of lines (group, x, values), in words for their names."""
  views = {label: name.removesuffix(ACCURACY) for label, name in names.items()}
  several = len({*views.values()}) > 1
  if several:
    title = 'Accuracy'
  else:
    view = min(views.values(), default='')
    title = f'{"Server" if view == "global" else view.capitalize()} accuracy'
  if len({name == SERVER for name in names.values()}) > 1:
    y_label = 'accuracy, %'
  else:
    is_server = SERVER in names.values()
    y_label = 'accuracy on the whole test set, %' if is_server else MEAN
  drawn = [
    series(group, x, values, views[group.label] if several else '')
    for group, x, values in lines
  ]
  return panels.curves(f'{title} over {over}', drawn, x_label, y_label)


def _stops(group: Group) -> dict[int, str]:
  """Return {epochs of fine-tuning: view}; 0 is the global model."""
  views = group.first.views
  stops = {0: 'initial'} if 'initial' in views else {}
  for view in views:
    if match := FINETUNED.fullmatch(view):
      stops[int(match[1])] = view
  last = group.first.config.get('finetune', {}).get('epochs')
  if last and 'finetuned' in views:
    stops[max(np.atleast_1d(last).tolist())] = 'finetuned'
  return dict(sorted(stops.items()))
