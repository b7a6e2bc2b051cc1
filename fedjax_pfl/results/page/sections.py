"""The sections of the page about curves and clients, with their charts."""

import itertools
import re
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup

from fedjax_pfl.evaluation.measures import ACCURACY
from fedjax_pfl.results.charts import lines, rows, svg
from fedjax_pfl.results.charts.partition import AREA, partition
from fedjax_pfl.results.charts.svg import Panel, Section
from fedjax_pfl.results.page.styles import css_of, style_of_group
from fedjax_pfl.results.runs.groups import (
  Group,
  has_worst_tenth,
  views_in_words,
)
from fedjax_pfl.results.statistics.differences import (
  MIN_SEEDS,
  Difference,
  over_seeds,
)

SERVER = 'global/'  # begins the name of its number in the metrics
FINETUNED = re.compile(r'finetuned_(\d+)')
SEEDS = 'Lines are means over seeds, bands go from the lowest to the highest.'
CHARACTER = 6.6  # width of one in a chart
LEVELS = 'Hollow: before personalisation. Filled: after, mean over clients.'
CROSS = 'Cross: worst tenth of the clients.'
SEVERAL = (
  'Line: 95 % interval over three seeds or more (Student); of fewer, the way '
  'from before to after.'
)
# Group, name in the metrics, places on the axis [T], values of seeds [S, T].
Line = tuple[Group, str, np.ndarray, np.ndarray]


# ---- accuracy against rounds, bytes and epochs of fine-tuning


def learning(groups: Sequence[Group]) -> Section:
  """Return accuracy over rounds, bytes and simulated time."""
  pairs = [(group, _evaluated(group)) for group in groups]
  shown = [_line(group, names[0]) for group, names in pairs if names]
  if not shown:
    text = 'These runs were not evaluated during their rounds.'
    return Section('Learning', text, [])
  panels = _over_rounds(shown) + _over_bytes(shown) + _over_time(shown)
  for name in dict.fromkeys(itertools.chain(*(names for _, names in pairs))):
    others = [group for group, names in pairs if name in names[1:]]
    panels += _over_rounds([_line(group, name) for group in others])
  text = 'Tests while the server learns.'
  if any(len(group.runs) > 1 for group in groups):
    text += f' {SEEDS}'
  return Section('Learning', text, panels)


def ending(group: Group) -> str:
  """Return what follows a view in the metrics: '/accuracy'."""
  return f'/{group.first.measure.name}'


def _name(group: Group) -> str:
  measure = group.first.measure
  return 'accuracy' if measure == ACCURACY else measure.head


def _label(group: Group, words: str) -> str:
  """Return 'mean accuracy of the clients, %' for 'mean {} of the clients'."""
  return group.first.measure.label(words.format(_name(group)))


def _axis(groups: Sequence[Group], values: Iterable) -> Sequence[float]:
  """Return the marks of an axis of these values."""
  if groups[0].first.measure.unit == '%':
    return rows.PERCENT
  flat = np.concatenate([np.ravel(x) for x in values if x is not None])
  flat = flat[np.isfinite(flat)]
  return svg.ticks(flat.min(initial=0.0), flat.max(initial=1e-6))


def _evaluated(group: Group) -> list[str]:
  """Return the accuracies in the metrics: that of the first view first."""
  names = [f'{view}{ending(group)}' for view in [*group.first.views, 'global']]
  logged = sorted({*itertools.chain(*group.first.metrics)})
  names += [name for name in logged if name.endswith(ending(group))]
  is_finite = lambda name: np.isfinite(group.curve(name)[1]).any()
  return [*filter(is_finite, dict.fromkeys(names))]


def _line(group: Group, name: str) -> Line:
  return group, name, *group.curve(name)


def _over_rounds(shown: Sequence[Line]) -> list[Panel]:
  rounds = [at for _, _, at, _ in shown]
  return _curves(shown, rounds, 'rounds', 'communication rounds')


def _over_bytes(shown: Sequence[Line]) -> list[Panel]:
  """Draw lines over the bytes that all clients have sent and received."""
  sent = [
    group.total('bytes_down', rounds) + group.total('bytes_up', rounds)
    for group, _, rounds, _ in shown
  ]
  sent = [x if (x > 0).any() else None for x in sent]  # NaN: not recorded
  largest = max((x.max() for x in sent if x is not None), default=0)
  unit, name = (1e9, 'GB') if largest >= 2e9 else (1e6, 'MB')
  sent = [None if x is None else x / unit for x in sent]
  return _curves(shown, sent, 'bytes', f'{name} sent, down and up')


def _over_time(shown: Sequence[Line]) -> list[Panel]:
  """Draw lines over simulated time, the mean over seeds."""
  passed = []
  for group, _, rounds, _ in shown:
    at, seconds = group.curve('sim_seconds')
    totals = np.array([0.0, *seconds.mean(0)])
    times = totals[np.searchsorted(at, rounds, side='right')]
    passed.append(times if len(at) else None)
  return _curves(shown, passed, 'simulated time', 'simulated seconds')


def _curves(
  shown: Sequence[Line],
  places: Sequence[np.ndarray | None],
  over: str,
  x_label: str,
) -> list[Panel]:
  """Return the chart of the lines at these places [T]; None: not recorded."""
  kinds = {name for _, name, *_ in shown}
  if not shown:
    return []
  quantity, first = _name(shown[0][0]), shown[0][0]
  of_server = [kind for kind in kinds if kind.startswith(SERVER)]
  title, y_label = quantity[0].upper() + quantity[1:], 'mean {} of the clients'
  if len(of_server) == len(kinds):
    title, y_label = f'Server {quantity}', '{} on the whole test set'
  elif len(kinds) == 1:
    title = f'{max(kinds).partition("/")[0].capitalize()} {quantity}'
  elif of_server:
    y_label = '{}'
  drawn = []
  for (group, name, _, values), x in zip(shown, places, strict=True):
    if x is None:
      continue
    view = name.removesuffix(ending(group))
    label = f'{group.label}, {view}' if len(kinds) > 1 else group.label
    drawn.append(_series(group, label, x, values))
  y_label = _label(first, y_label)
  return lines.curves(f'{title} over {over}', drawn, x_label, y_label)


def _series(
  group: Group, label: str, x: np.ndarray, values: np.ndarray
) -> lines.Series:
  """Return a line through the means of values [S, T]."""
  band = (values.min(0), values.max(0)) if len(values) > 1 else (None, None)
  style = style_of_group(group)
  look = css_of(group), style.dash, style.marker
  text = group.first.measure.short
  return lines.Series(label, *look, x, values.mean(0), *band, text)


def finetuning(groups: Sequence[Group]) -> Section | None:
  """Return accuracy against epochs of fine-tuning; None for a single epoch."""
  stops = [(group, _stops(group)) for group in groups]
  stops = [(group, views) for group, views in stops if len(views) > 2]
  if not stops:
    return None
  panels = []
  for title, quantity, who in (
    ('Mean over clients', 'mean', 'clients'),
    ('Worst tenth', 'worst_decile', 'worst tenth'),
  ):
    drawn = []
    for group, views in stops:
      values = [group.numbers(view, quantity) for view in views.values()]
      x = np.array(list(views), float)
      drawn.append(_series(group, group.label, x, np.stack(values, 1)))
    label = _label(groups[0], f'mean {{}} of the {who}')
    panels += lines.curves(title, drawn, 'epochs of fine-tuning', label)
  text = (
    'Tests after so many epochs on the own training data; 0: the global model '
    'itself.'
  )
  return Section('Fine-tuning', text, panels)


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


# ---- accuracies, gains and examples of the clients


def change_of(group: Group) -> rows.Change:
  """Return the accuracy of the clients of all seeds, before and after."""
  return rows.Change(
    group.label,
    css_of(group),
    group.accuracy(group.before),
    group.accuracy(group.after),
    group.first.measure.sign,
  )


def spread(groups: Sequence[Group]) -> Section:
  """Return the accuracies of all clients, their mean and worst tenth."""
  changes = [*map(change_of, groups)]
  values = [x for change in changes for x in (change.before, change.after)]
  label = _label(groups[0], '{} of a client')
  every = rows.plot_clients(changes, label, _axis(groups, values))
  levels = plot_levels(groups, rows.WIDTH)
  panels = [
    Panel('Every client', every, rows.MEANING),
    Panel('Mean over clients', levels, levels_in_words(groups)),
  ]
  text = f'The views compared: {views_in_words(groups)}.'
  return Section('Before and after personalisation', text, panels)


def plot_levels(groups: Sequence[Group], width: float) -> Markup:
  """Draw a line a group, from before to after or an interval over seeds."""
  levels, shown = [], []
  for group in groups:
    before, after = (group.mean(x, 'mean') for x in (group.before, group.after))
    first, interval = rows.Mark(before, kind='hollow'), interval_of(group)
    most = 100 if group.first.measure.unit == '%' else np.inf
    last = rows.Mark(after, interval.low, np.minimum(interval.high, most))
    if not interval.has_interval:
      first = first._replace(low=before, high=after)
    worst = rows.Mark(group.mean(group.after, 'worst_decile'), marker='X')
    marks = first, last, worst
    shown += [mark[:3] for mark in marks]
    texts = (group.first.measure.short(after),)
    levels.append(rows.Row(group.label, marks, texts, css_of(group)))
  longest = max(len(group.label) for group in groups)
  left = min(max(rows.LEFT, CHARACTER * longest + 20), width / 2)
  axis = _axis(groups, [np.array(shown, float)])
  form = {'height': rows.ROW, 'margins': (left, 44), 'axis': axis}
  label = _label(groups[0], 'test {}')
  return rows.plot_intervals(levels, label, width=width, **form)


def interval_of(group: Group) -> Difference:
  """Return the mean over seeds; of fewer than three without an interval."""
  seeds = group.numbers(group.after, 'mean')
  is_known = len(seeds) >= MIN_SEEDS
  return over_seeds(seeds) if is_known else Difference(float(np.mean(seeds)))


def levels_in_words(groups: Sequence[Group]) -> str:
  text = [LEVELS]
  if max(len(group.runs) for group in groups) >= MIN_SEEDS:
    text.append(SEVERAL)
  return ' '.join([*text, *[CROSS] * has_worst_tenth(groups)])


def gains(groups: Sequence[Group]) -> Section | None:
  """Return each client's gain or loss; None without a view before."""
  shown = [(group, change_of(group)) for group in groups if group.before]
  if not shown:
    return None
  ends = rows.ends_of([change for _, change in shown])
  panels = []
  for group, change in shown:
    measure = group.first.measure
    svg = rows.plot_gains(change, group.client_name, ends, measure)
    values = change.gains[np.isfinite(change.gains)]
    note = 'No client has both accuracies.'
    if values.size:
      won, lost = np.sum(values > 0), np.sum(values < 0)
      note = f'{won:,} of {values.size:,} clients gained, {lost:,} lost; '
      note += f'median {measure.signed(np.median(values), short=True)}.'
    panels.append(Panel(group.label, svg, note, css=css_of(group)))
  text = (
    'One bar for each client, from the largest gain to the largest loss; all '
    'charts share one axis.'
  )
  return Section('What each client gained or lost', text, panels)


def examples(groups: Sequence[Group]) -> Section | None:
  """Return the examples of the clients: a chart for each partition.

  None of labels that are not classes.
  """
  if groups[0].first.measure != ACCURACY:
    return None
  held_by, unknown = {}, []
  for group in groups:
    run = group.first
    if run.clients.train_classes is None:
      unknown.append(group.label)
    else:
      held_by.setdefault(run.data, (run, []))[1].append(group.label)
  panels, sentences = [], []
  for run, labels in held_by.values():
    suffix = f' ({"; ".join(labels)})' if len(held_by) > 1 else ''
    held = run.clients
    names = held.labels, held.class_names
    panels.append(partition(f'Training{suffix}', held.train_classes, *names))
    panels.append(partition(f'Testing{suffix}', held.test_classes, *names))
  if held_by:
    sentences.append(AREA)
    if any(len(group.runs) > 1 for group in groups):
      sentences.append('Of several seeds, the first is drawn.')
  if unknown:
    labels = '; '.join(unknown)
    sentences.append(f'Not recorded by runs of an earlier version: {labels}.')
  return Section('Examples of the clients', ' '.join(sentences), panels)


IN_ORDER = learning, spread, gains, finetuning, examples  # on the page
