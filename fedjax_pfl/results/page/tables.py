"""Tables of the page: accuracies in percent, costs, clients, settings."""

import collections
import itertools
import json
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.evaluation.measures import (
  ACCURACY,
  MEASURES,
  MIN_TESTS,
  Measure,
  measure_of,
)
from fedjax_pfl.results.page.styles import css_of
from fedjax_pfl.results.runs.groups import (
  Group,
  Views,
  compared_measures,
  either,
  has_worst_tenth,
  notes_on_choice,
)
from fedjax_pfl.results.runs.run import notes_on_batches
from fedjax_pfl.results.statistics import standing
from fedjax_pfl.results.statistics.standing import ONE_SEED, Place
from fedjax_pfl.results.tables import result_table
from fedjax_pfl.results.tables.result_table import seeds_of
from fedjax_pfl.results.tables.table import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  number,
  size,
  table_of,
  time_in_words,
  word,
)

# {view: (mean, std, table, footnotes)}; std None: not published.
Printed = Mapping[str, tuple[float, float | None, str, Sequence[str]]]
FIVE = 5  # classes of which top5 is always right
MAX_ROWS = 3000  # of clients: more make the page slow
ABSENT = '(absent)'
BEHIND = (
  'Bold: the best, and what is not distinguishable from it. Behind it: the '
  '95 % interval over paired seeds, with an error not below that of the '
  'clients; Holm decides over all pairs.'
)
FEW_TESTS = (
  f'No worst tenth: a client has fewer than {MIN_TESTS} tests, of which chance '
  'makes the lowest.'
)
SPREAD = 'Mean ± standard deviation over clients, {}.'
LOST = Column(
  *('Lost', 'of the clients'),
  help='clients that are worse after personalisation than before',
)
WORSE = Column(
  *('Worse than alone', 'of the clients'),
  help='clients whose accuracy is lower than that of Local only, with the same '
  'seed and data',
)
INTERVAL = Column(
  *('Interval', 'of the mean'),
  help='of one run 95 %, by resampling its clients; of several seeds from the '
  'lowest to the highest',
)
RECORDED = ('data', 'version', 'commit', 'jax', 'devices')


# ---- accuracies, with published numbers


def summary(groups: Sequence[Group], printed: Sequence[Printed]) -> Table:
  """Return a row for each group: before, after, gain, published numbers."""
  # The views are in the head of a column, or below its cells.
  firsts = {group.before or '' for group in groups}
  lasts = {either(group.after) for group in groups}
  first, last = (max(v) if len(v) == 1 else '' for v in (firsts, lasts))
  has_server = any('global' in run.result for g in groups for run in g.runs)
  places = {place.name: place for place in rank(groups)}
  has_before = any(group.before for group in groups)
  is_decided = any(place.verdict for place in places.values())
  labels = [g.label for g in groups if g.first.method == standing.ALONE]
  main = groups[0].first.measure
  values = {group.label: group.accuracy_by_seed() for group in groups}
  alone = standing.worse_than_alone(values, labels, main.sign)
  measures = compared_measures(groups)
  rows = []
  for group, known in zip(groups, printed, strict=True):
    before, after, row = group.before, group.after, {METHOD: group_cell(group)}
    if has_before:
      cell = _accuracy(group, before, known, name_view=not first)
      row[Column('Before', first)] = cell
    cell = _accuracy(group, after, known, name_view=not last)
    row[Column('After', last)] = cell
    if is_decided:
      place = places.get(group.label)
      is_best = bool(place and place.is_open)
      row[Column('After', last)] = cell._replace(is_best=is_best)
      row[Column('Behind', 'the best')] = _behind(place, main)
    if has_before:
      gain = group.numbers(after, 'mean') - group.numbers(before, 'mean')
      gain = main.sign * gain.mean()
      row[Column('Gain', main.unit_of_gap)] = number(gain, main.signed)
    for measure in measures:
      column = Column(measure.head, 'after', help=measure.help)
      is_of_main = measure.of_clients and main != ACCURACY
      text = main.text if is_of_main else measure.text
      row[column] = number(group.mean(after, measure.name), text)
    if has_before:
      row[LOST] = _lost(group)
    if alone:
      row[WORSE] = number(alone.get(group.label), '{:.0f} %')
    if has_server:
      servers = [run.result.get('global') or {} for run in group.runs]
      accuracy = np.array([x.get(main.name) for x in servers], float)
      row[Column('Server', 'whole test set')] = number(
        accuracy.mean(), main.text
      )
    rows.append(row)
  what = 'in percent' if main == ACCURACY else f'of {main.head}'
  notes = [BEHIND] * is_decided + [SPREAD.format(what)]
  notes += _notes(groups, printed)
  notes += [FEW_TESTS] * (not has_worst_tenth(groups))
  return table_of('Summary', rows, notes)


def group_cell(group: Group) -> Cell:
  return Cell(group.label, group.label, css=css_of(group))


def _behind(place: Place | None, measure: Measure) -> Cell:
  """Return how far it is behind the best, and the interval."""
  if place is None or place.is_best:
    return Cell(NONE)
  below = []
  if place.verdict:
    ends = map(measure.text, place.verdict.gap[1:3])
    below = [' to '.join(ends), place.words]
  return number(place.below, measure.text, tuple(filter(None, below)))


def rank(groups: Sequence[Group]) -> list[Place]:
  """Return the groups with a finite mean, the best first."""
  values = {group.label: group.accuracy_by_seed() for group in groups}
  same_clients = all(group.first.has_same_clients for group in groups)
  return standing.rank(values, same_clients, groups[0].first.measure)


def choices(groups: Sequence[Group]) -> Table | None:
  """Return the rounds that may be chosen, of groups that can choose."""
  shown = _that_have('validation', groups)
  return result_table.choices(
    [(group_cell(group), [run.result for run in group.runs]) for group in shown]
  )


def unseen_clients(groups: Sequence[Group]) -> Table | None:
  """Return clients who came after training, beside those who took part.

  A row for each group with unseen clients; None without any.
  """
  rows, main = [], groups[0].first.measure
  for group in _that_have('unseen', groups):
    row = {METHOD: group_cell(group)}
    parts = {'Took part': 'views', 'Unseen': 'unseen'}
    for head, part in parts.items():
      for way, view in (('before', group.before), ('after', group.after)):
        numbers = group.numbers(view, 'mean', part)
        row[Column(head, way)] = number(numbers.mean(), main.text)
    old, new = (group.numbers(group.after, 'mean', p) for p in parts.values())
    row[Column('Difference', 'after')] = number((new - old).mean(), main.signed)
    for head, part in parts.items():
      numbers = group.numbers(group.after, 'worst_decile', part)
      row[Column('Worst tenth', head.lower())] = number(
        numbers.mean(), main.text
      )
    counts = group.numbers(group.after, 'num_clients', 'unseen')
    row[Column('Unseen', 'clients')] = number(counts.mean(), '{:,.0f}')
    rows.append(row)
  return table_of('Clients who came after training', rows)


def all_views(groups: Sequence[Group]) -> Table:
  """Return a row for every view of every group, with all metrics."""
  pairs = [(group, view) for group in groups for view in group.first.views]
  scores = [run.clients.scores[view] for g, view in pairs for run in g.runs]
  names = dict.fromkeys(name for score in scores for name in score.own or ())
  users = [x for x in map(measure_of, names) if x not in MEASURES]
  hidden = ['top5'] * has_few_classes(groups)
  measures = [
    measure
    for measure in MEASURES
    if any(np.isfinite(g.numbers(v, measure.name)).any() for g, v in pairs)
    and measure.name not in hidden
  ]
  measures += users
  rows = []
  for group, view in pairs:
    row = {METHOD: group_cell(group)}
    row[Column('View', is_number=False)] = word(view)
    for measure in measures:
      hint = measure.unit.replace('%', '')
      column = Column(measure.head, hint, help=measure.help)
      row[column] = number(group.mean(view, measure.name), measure.text)
    row[INTERVAL] = _interval(group, view)
    rows.append(row)
  note = "Metrics by other names are the user's: means over clients."
  return table_of('Every view', rows, [note] * bool(users))


def has_few_classes(groups: Sequence[Group]) -> bool:
  """Return whether each of the classes is among the five first."""
  held = [group.first.clients.train_classes for group in groups]
  return all(counts is not None and counts.shape[1] <= FIVE for counts in held)


def _that_have(part: str, groups: Sequence[Group]) -> list[Group]:
  """Return the groups all of whose results have this part."""
  return [g for g in groups if all(part in run.result for run in g.runs)]


def _accuracy(
  group: Group, views: Views, printed: Printed, *, name_view: bool
) -> Cell:
  """Return mean ± std over clients, with the published number below."""
  if views is None:
    return Cell(NONE)
  means, main = group.numbers(views, 'mean'), group.first.measure
  view = views if isinstance(views, str) else either(views)
  below = [*[view] * name_view, *seeds_of(means, main)]
  if view in printed:
    theirs, std, *_ = printed[view]
    text = f'{theirs:.2f}' if std is None else f'{theirs:.2f} ± {std:.2f}'
    below.append(f'published {text} ({means.mean() - theirs:+.2f})')
  texts = map(main.text, (means.mean(), group.mean(views, 'std')))
  return number(means.mean(), ' ± '.join(texts), tuple(below))


def _lost(group: Group) -> Cell:
  """Return the share of clients that lose by personalisation."""
  if not group.before:
    return Cell(NONE)
  gains = group.accuracy(group.after) - group.accuracy(group.before)
  gains = group.first.measure.sign * gains[~np.isnan(gains)]
  lost = 100 * np.mean(gains < 0) if gains.size else math.nan
  return number(lost, '{:.0f} %')


def _interval(group: Group, view: str) -> Cell:
  means, text = group.numbers(view, 'mean'), group.first.measure.text
  low, high = means.min(), means.max()
  if len(means) == 1:
    summary = group.first.result['views'][view]
    low, high = summary.get('interval') or (None, None)
  return number(low, f'{text(low)} to {text(high)}')


def _notes(groups: Sequence[Group], printed: Sequence[Printed]) -> list[str]:
  """Return what is to be said of these groups below the summary."""
  by_label = {group.label: group.runs for group in groups}
  notes = notes_on_choice(groups)
  results = {name: [x.result for x in runs] for name, runs in by_label.items()}
  notes += notes_on_batches(results)
  if all(len(runs) == 1 for runs in by_label.values()):
    notes.append(f'{ONE_SEED} The spread over seeds is unknown.')
  runs = [run for group in groups for run in group.runs]
  if fewer := {len(x.clients.ids) for x in runs if x.shared is not None}:
    notes.append(
      'Some runs lack clients that others have (unseen_clients): the numbers '
      f'are of the {either(map(str, sorted(fewer)))} clients that each has, '
      'and curves over rounds of those that the run has.'
    )
  left_out = collections.defaultdict(list)
  for label, runs in by_label.items():
    views = [view for run in runs for view in run.result['views'].values()]
    left_out[max(view.get('num_left_out') or 0 for view in views)].append(label)
  notes += [
    'Clients left out of the means: attackers, not evaluated, or without '
    f'training or test examples: {most:,} ({", ".join(labels)}).'
    for most, labels in left_out.items()
    if most
  ]
  cited = [
    (f'{group.label}, {view}', table, footnotes)
    for group, known in zip(groups, printed, strict=True)
    for view, (_, _, table, footnotes) in known.items()
    if view in (group.before, either(group.after))
  ]
  if cited:
    names = '; '.join(dict.fromkeys(table for _, table, _ in cited))
    notes.append(f'Published: {names}; in brackets, ours less theirs.')
  concerns = collections.defaultdict(list)
  for cell, _, footnotes in cited:
    for note in footnotes:
      concerns[note].append(cell)
  return notes + [
    note if len(cells) == len(cited) else f'{"; ".join(cells)}: {note}'
    for note, cells in concerns.items()
  ]


# ---- costs, every client, settings, data and devices


def cost(groups: Sequence[Group]) -> Table:
  """Return bytes sent, images per second and time of each group."""
  rows = []
  for group in groups:
    down, up = (group.total(f'bytes_{way}') for way in ('down', 'up'))
    rounds = group.first.result['rounds']
    seconds = np.mean([run.result['seconds'] for run in group.runs])
    speeds = [run.curve('images_per_second')[1] for run in group.runs]
    known = np.concatenate(speeds)
    speed = np.median(known) if known.size else math.nan
    row = {METHOD: group_cell(group)}
    row[Column('Rounds')] = number(rounds, '{:,}')
    row[Column('Images/s', 'median')] = number(speed, '{:,.0f}')
    row[Column('Sent down', 'all rounds')] = number(down, size)
    row[Column('Sent up', 'all rounds')] = number(up, size)
    both = (down + up) / max(rounds, 1)
    row[Column('Both', 'a round')] = number(both, size)
    row[Column('Time')] = number(seconds, time_in_words)
    rows.append(row)
  return table_of('Cost', rows)


def clients(groups: Sequence[Group]) -> Table | None:
  """Return a row for every client of every run; None if there are too many."""
  pairs = [(group, run) for group in groups for run in group.runs]
  if sum(len(run.clients.ids) for _, run in pairs) > MAX_ROWS:
    return None
  rows = []
  for group, run in pairs:
    first, last = run.compared
    after = run.accuracy(last)
    before = run.accuracy(first) if first else after * np.nan
    held = run.clients.train_classes
    classes = after * np.nan if held is None else (held > 0).sum(1)
    main, gain = run.measure, run.measure.sign * (after - before)
    signed = lambda gain, of=main: of.signed(gain, short=True)
    numbers = {
      Column('Images', 'training'): (run.clients.train_count, '{:,.0f}'),
      Column('Classes', 'training'): (classes, '{:.0f}'),
      Column('Before'): (before, main.short),
      Column('After'): (after, main.short),
      Column('Gain', main.unit_of_gap): (gain, signed),
    }
    for at, client in enumerate(run.clients.labels):
      row = {METHOD: group_cell(group)}
      row[Column('Client')] = Cell(f'{client}', int(run.clients.ids[at]))
      row[Column('Seed')] = word(run.seed)
      for column, (values, form) in numbers.items():
        row[column] = number(values[at], form)
      rows.append(row)
  return table_of('Every client', rows)


def differences(groups: Sequence[Group]) -> Table | None:
  """Return the fields in which the groups differ; None if there are none."""
  flats = {group.label: group.settings for group in groups}
  rows = []
  for field in dict.fromkeys(itertools.chain(*flats.values())):
    row = {Column('Field', is_number=False): word(field)}
    for label, flat in flats.items():
      value = json.dumps(flat[field]) if field in flat else ABSENT
      row[Column(label, is_number=False)] = word(value)
    _, *values = row.values()
    # Seeds are in the table of runs.
    rows += [row] * (len({*values}) > 1 and field != 'seed')
  return table_of('Settings that differ', rows)


def runs(groups: Sequence[Group]) -> Table:
  """Return the directory, data and devices of every run."""
  rows, pairs = [], [(group, run) for group in groups for run in group.runs]
  for group, run in pairs:
    path = word(run.path)._replace(css=css_of(group))
    row = {Column('Run', is_number=False): path}
    row[Column('Seed')] = word(run.seed)
    for name in RECORDED:
      value = run.record.get(name)
      if name == 'commit' and value:
        value = value[:10]  # in full in config.json below
      if isinstance(value, list):
        value = ', '.join(map(str, value))
      row[Column(name.capitalize(), is_number=False)] = word(value)
    rows.append(row)
  return table_of('Runs', rows)
