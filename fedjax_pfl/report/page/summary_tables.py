"""Tables of accuracies in percent, with published numbers."""

import collections
import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.report.finished_runs import (
  KINDS,
  either,
  notes_on_choice,
  summaries_by_choice,
)
from fedjax_pfl.report.page.groups import Group, Views
from fedjax_pfl.report.page.tables import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  group_cell,
  make_table,
  mean,
  number,
  word,
)

# {view: (mean, std, table, footnotes)}; std None: not published.
Printed = Mapping[str, tuple[float, float | None, str, Sequence[str]]]
MEASURED = {
  'mean': Column('Mean', best='max'),
  'std': Column('Std'),
  'worst_decile': Column('Worst tenth', best='max'),
  'pooled': Column('Pooled', best='max'),
  'top5': Column('Top 5', best='max'),
  'loss': Column('Loss', best='min'),
  'ece': Column('ECE', best='min', digits=3),
  'mce': Column('MCE', best='min', digits=3),
  'num_clients': Column('Clients', digits=0),
}
CHOICES = (
  METHOD,
  Column('Last', best='max'),
  Column('Validation', best='max'),
  Column('Test best', 'no main number'),
  Column('Chosen', 'round, view', is_number=False),
  Column('On validation', 'examples'),
  Column('Result', 'select', is_number=False),
)
UNSEEN = (
  METHOD,
  Column('Took part', 'before', best='max'),
  Column('Took part', 'after', best='max'),
  Column('Unseen', 'before', best='max'),
  Column('Unseen', 'after', best='max'),
  Column('Difference', 'after, points'),
  Column('Worst tenth', 'took part', best='max'),
  Column('Worst tenth', 'unseen', best='max'),
  Column('Unseen', 'clients'),
)


def summary(groups: Sequence[Group], printed: Sequence[Printed]) -> Table:
  """Return a row for each group: before, after, gain, published numbers."""
  # The views are in the head of a column, or below its cells.
  firsts = {group.before or '' for group in groups}
  lasts = {either(group.after) for group in groups}
  hints = [max(one) if len(one) == 1 else '' for one in (firsts, lasts)]
  columns = [
    METHOD,
    Column('Before', hints[0], best='max'),
    Column('After', hints[1], best='max'),
    Column('Gain', 'points'),
    Column('Worst tenth', 'after', best='max'),
    Column('Lost', 'of the clients', best='min', digits=0),
  ]
  if any('global' in run.result for group in groups for run in group.runs):
    columns.append(Column('Server', 'whole test set', best='max'))
  rows = []
  for group, known in zip(groups, printed, strict=True):
    before, after = group.before, group.after
    gain = group.numbers(after, 'mean') - group.numbers(before, 'mean')
    cells = [
      _accuracy(group, before, known, name_view=len(firsts) > 1),
      _accuracy(group, after, known, name_view=len(lasts) > 1),
      mean(gain, '{:+.2f}'),
      mean(group.numbers(after, 'worst_decile')),
      _lost(group),
      _server(group),
    ]
    rows.append([group_cell(group), *cells][: len(columns)])
  return make_table('Summary', columns, rows, _notes(groups, printed))


def choices(groups: Sequence[Group]) -> Table | None:
  """Return the rounds that may be chosen: last, by validation, by tests.

  A row for each group that keeps examples for choosing; None without any.
  """
  rows = []
  for group in _that_have('validation', groups):
    chosen = [run.result['validation'] for run in group.runs]
    words = dict.fromkeys(f'{one["round"]}, {one["view"]}' for one in chosen)
    there = mean([one['validation_accuracy'] for one in chosen])
    cells = [_by_choice(group, kind) for kind in KINDS]
    cells += [Cell('; '.join(words), chosen[0]['round']), there]
    select = word(group.first.result['select'])
    rows.append([group_cell(group), *cells, select])
  return make_table('The round by validation', CHOICES, rows) if rows else None


def unseen_clients(groups: Sequence[Group]) -> Table | None:
  """Return clients who came after training, beside those who took part.

  A row for each group with unseen clients; None without any.
  """
  rows = []
  for group in _that_have('unseen', groups):
    old, new = (
      [
        group.numbers(views, 'mean', part)
        for views in (group.before, group.after)
      ]
      for part in ('views', 'unseen')
    )
    worst = [
      group.numbers(group.after, 'worst_decile', part)
      for part in ('views', 'unseen')
    ]
    number_of = group.numbers(group.after, 'num_clients', 'unseen')
    cells = [*map(mean, [*old, *new]), mean(new[1] - old[1], '{:+.2f}')]
    cells += [*map(mean, worst), mean(number_of, '{:,.0f}')]
    rows.append([group_cell(group), *cells])
  title = 'Clients who came after training'
  return make_table(title, UNSEEN, rows) if rows else None


def all_views(groups: Sequence[Group]) -> Table:
  """Return a row for every view of every group, with all metrics."""
  found = [(group, view) for group in groups for view in group.first.views]
  columns = {
    name: (column, f'{{:,.{column.digits}f}}')
    for name, column in MEASURED.items()
    if any(
      np.isfinite(group.numbers(view, name)).any() for group, view in found
    )
  }
  scores = [run.clients.scores[view] for g, view in found for run in g.runs]
  users = dict.fromkeys(name for one in scores for name in one.own or ())
  columns |= {name: (Column(name), '{:.4g}') for name in users}
  heads = [METHOD, Column('View', is_number=False)]
  heads += [column for column, _ in columns.values()]
  heads.append(Column('Interval', 'of the mean'))
  rows = [
    [
      group_cell(group),
      word(view),
      *(
        mean(group.numbers(view, name), form)
        for name, (_, form) in columns.items()
      ),
      _interval(group, view),
    ]
    for group, view in found
  ]
  own = "Metrics by other names are the user's: means over clients."
  return make_table('Every view', heads, rows, [own] * bool(users))


def _that_have(part: str, groups: Sequence[Group]) -> list[Group]:
  """Return the groups all of whose results have this part."""
  return [
    group for group in groups if all(part in run.result for run in group.runs)
  ]


def _accuracy(
  group: Group, views: Views, printed: Printed, *, name_view: bool
) -> Cell:
  """Return mean ± std over clients, with the published number below."""
  if views is None:
    return Cell(NONE)
  means = group.numbers(views, 'mean')
  view = views if isinstance(views, str) else either(views)
  below = [*[view] * name_view, *_seeds(means)]
  value = float(np.mean(means))
  if view in printed:
    theirs, std, *_ = printed[view]
    words = f'{theirs:.2f}' if std is None else f'{theirs:.2f} ± {std:.2f}'
    below.append(f'published {words} ({value - theirs:+.2f})')
  form = f'{{:.2f}} ± {group.mean(views, "std"):.2f}'
  return number(value, form, tuple(below))


def _by_choice(group: Group, kind: str) -> Cell:
  """Return the mean over seeds, ± that of the deviations over clients."""
  found = [summaries_by_choice(run.result)[kind] for run in group.runs]
  if any(one is None or one['mean'] is None for one in found):
    return Cell(NONE)
  means = np.array([one['mean'] for one in found])
  spread = np.mean([one['std'] for one in found])
  return number(means.mean(), f'{{:.2f}} ± {spread:.2f}', tuple(_seeds(means)))


def _seeds(means: np.ndarray) -> list[str]:
  """Return the range of several seeds."""
  if len(means) == 1:
    return []
  return [f'{len(means)} seeds: {means.min():.2f} to {means.max():.2f}']


def _lost(group: Group) -> Cell:
  """Return the share of clients that lose by personalisation."""
  change = group.change
  if change.before is None:
    return Cell(NONE)
  gains = change.gains[np.isfinite(change.gains)]
  lost = 100 * np.mean(gains < 0) if gains.size else math.nan
  return number(lost, '{:.0f} %')


def _server(group: Group) -> Cell:
  found = [run.result.get('global') or {} for run in group.runs]
  return mean(np.array([one.get('accuracy') for one in found], float))


def _interval(group: Group, view: str) -> Cell:
  if len(group.runs) == 1:
    ends = group.first.result['views'][view].get('interval') or [None]
  else:
    means = group.numbers(view, 'mean')
    ends = [float(means.min()), float(means.max())]
  if any(end is None or not math.isfinite(end) for end in ends):
    return Cell(NONE)
  return Cell(f'{ends[0]:.2f} to {ends[1]:.2f}', ends[0])


def _notes(groups: Sequence[Group], printed: Sequence[Printed]) -> list[str]:
  """Return what is to be said of these groups below the summary."""
  notes = notes_on_choice({group.label: group.runs for group in groups})
  if all(len(group.runs) == 1 for group in groups):
    notes.append('One seed each: the spread over seeds is unknown.')
  left_out = collections.defaultdict(list)
  for group in groups:
    views = [one for r in group.runs for one in r.result['views'].values()]
    most = max(one.get('num_left_out') or 0 for one in views)
    left_out[most].append(group.label)
  notes += [
    f'Clients left out of the means, for want of training or test examples: '
    f'{most:,} ({", ".join(labels)}).'
    for most, labels in left_out.items()
    if most
  ]
  # Of every published number its place here, its table and its footnotes.
  shown = [
    (f'{group.label}, {view}', table, footnotes)
    for group, one in zip(groups, printed, strict=True)
    for view, (_, _, table, footnotes) in one.items()
  ]
  if shown:
    tables = '; '.join(dict.fromkeys(table for _, table, _ in shown))
    notes.append(f'Published: {tables}; in brackets, ours less theirs.')
  concerns = collections.defaultdict(list)
  for place, _, footnotes in shown:
    for note in footnotes:
      concerns[note].append(place)
  return notes + [
    note if len(places) == len(shown) else f'{"; ".join(places)}: {note}'
    for note, places in concerns.items()
  ]
