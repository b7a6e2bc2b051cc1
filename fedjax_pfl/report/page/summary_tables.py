"""Tables of accuracies in percent, with published numbers."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.report.finished_runs import (
  KINDS,
  either,
  note_on_choice,
  summaries_by_choice,
)
from fedjax_pfl.report.page.groups import Group, Views
from fedjax_pfl.report.page.tables import (
  METHOD,
  NONE,
  Cell,
  Column,
  Table,
  make_table,
  mean,
  number,
)

# {view: (mean, std, table, footnotes)}; std None: not published.
Printed = Mapping[str, tuple[float, float | None, str, Sequence[str]]]
MEASURED = (
  ('mean', 'Mean', 'max'),
  ('std', 'Std', ''),
  ('worst_decile', 'Worst tenth', 'max'),
  ('pooled', 'Pooled', 'max'),
  ('top5', 'Top 5', 'max'),
  ('loss', 'Loss', 'min'),
  ('ece', 'ECE', 'min'),
  ('mce', 'MCE', 'min'),
  ('num_clients', 'Clients', ''),
)
DIGITS = {'num_clients': 0, 'ece': 3, 'mce': 3}  # all others have two


def summary(groups: Sequence[Group], printed: Sequence[Printed]) -> Table:
  """Return a row for each group: before, after, gain, published numbers."""
  first = {group.before for group in groups}
  last = {either(group.after) for group in groups}
  has_server = any('global' in run.result for g in groups for run in g.runs)
  columns = [
    METHOD,
    Column('Before', _common(first), best='max'),
    Column('After', _common(last), best='max'),
    Column('Gain', 'points'),
    Column('Worst tenth', 'after', best='max'),
    Column('Lost', 'of the clients', best='min', digits=0),
    *[Column('Server', 'whole test set', best='max')] * has_server,
  ]
  rows = []
  for group, known in zip(groups, printed, strict=True):
    before, after = group.before, group.after
    gain = group.numbers(after, 'mean') - group.numbers(before, 'mean')
    rows.append(
      [
        group_cell(group),
        _accuracy(group, before, known, name_view=len(first) > 1),
        _accuracy(group, after, known, name_view=len(last) > 1),
        mean(gain, '{:+.2f}'),
        mean(group.numbers(after, 'worst_decile')),
        _lost(group),
        *[_server(group)] * has_server,
      ]
    )
  return make_table('Summary', columns, rows, _notes(groups, printed))


def choices(groups: Sequence[Group]) -> Table | None:
  """Return the rounds that may be chosen: last, by validation, by tests.

  A row for each group that keeps examples for choosing; None without any.
  """
  rows = []
  for group in groups:
    results = [run.result for run in group.runs]
    if not all('validation' in result for result in results):
      continue
    chosen = [result['validation'] for result in results]
    words = dict.fromkeys(f'{one["round"]}, {one["view"]}' for one in chosen)
    select = results[0]['select']
    found = [summaries_by_choice(result) for result in results]
    rows.append(
      [
        group_cell(group),
        *(_by_choice([one[kind] for one in found]) for kind in KINDS),
        Cell('; '.join(words), chosen[0]['round']),
        mean(np.array([one['validation_accuracy'] for one in chosen])),
        Cell(select, select),
      ]
    )
  columns = (
    METHOD,
    Column('Last', best='max'),
    Column('Validation', best='max'),
    Column('Test best', 'no main number'),
    Column('Chosen', 'round, view', is_number=False),
    Column('On validation', 'examples'),
    Column('Result', 'select', is_number=False),
  )
  note = (
    'Accuracy on the tests after personalisation, mean ± standard deviation '
    'over clients, of the last round, of the round with the best mean accuracy '
    'on validation examples, and of the round with the best accuracy on the '
    'tests. The last of these is optimistic; it is there where eval_views has '
    'the view.'
  )
  title = 'The round by validation'
  return make_table(title, columns, rows, (note,)) if rows else None


def unseen_clients(groups: Sequence[Group]) -> Table | None:
  """Return clients who came after training, beside those who took part.

  A row for each group with unseen clients; None without any.
  """
  rows = []
  for group in groups:
    if not all('unseen' in run.result for run in group.runs):
      continue
    old, new = (
      {
        (view, name): group.numbers(views, name, part)
        for view, views in (('before', group.before), ('after', group.after))
        for name in ('mean', 'worst_decile')
      }
      for part in ('views', 'unseen')
    )
    means = ('before', 'mean'), ('after', 'mean')
    worst = 'after', 'worst_decile'
    rows.append(
      [
        group_cell(group),
        *(mean(side[one]) for side in (old, new) for one in means),
        mean(new['after', 'mean'] - old['after', 'mean'], '{:+.2f}'),
        *(mean(side[worst]) for side in (old, new)),
        mean(group.numbers(group.after, 'num_clients', 'unseen'), '{:,.0f}'),
      ]
    )
  columns = (
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
  note = (
    'Mean accuracy over clients in percent, before and after personalisation. '
    'Unseen clients are drawn by the seed, take part in no round, and begin '
    'with what the server has at the end; none of the other tables has them. '
    'Difference: unseen less those who took part, on other tests.'
  )
  title = 'Clients who came after training'
  return make_table(title, columns, rows, (note,)) if rows else None


def all_views(groups: Sequence[Group]) -> Table:
  """Return a row for every view of every group, with all metrics."""
  found = [(group, view) for group in groups for view in group.first.views]
  kinds = [
    kind
    for kind in MEASURED
    if any(
      np.isfinite(group.numbers(view, kind[0])).any() for group, view in found
    )
  ]
  known = {name for name, *_ in MEASURED}
  scores = [run.clients.scores[view] for g, view in found for run in g.runs]
  users = dict.fromkeys(name for one in scores for name in one.own or ())
  kinds += [(name, name, '') for name in users]
  forms = {
    kind: f'{{:,.{DIGITS.get(kind, 2)}f}}' if kind in known else '{:.4g}'
    for kind, *_ in kinds
  }
  columns = [
    METHOD,
    Column('View', is_number=False),
    *(
      Column(name, best=best, digits=DIGITS.get(kind, 2))
      for kind, name, best in kinds
    ),
    Column('Interval', 'of the mean'),
  ]
  rows = [
    [
      group_cell(group),
      Cell(view, view),
      *(mean(group.numbers(view, kind), form) for kind, form in forms.items()),
      _interval(group, view),
    ]
    for group, view in found
  ]
  notes = (
    'Pooled: over all test images; loss, ECE and MCE (calibration errors, as '
    'shares): means over clients. Interval: of one run 95 %, by resampling its '
    'clients; of several seeds from the lowest to the highest.',
    *["Metrics by other names are the user's: means over clients."]
    * bool(users),
  )
  return make_table('Every view', columns, rows, notes)


def group_cell(group: Group) -> Cell:
  return Cell(group.label, group.label, css=group.css)


def _common(views: set[str | None]) -> str:
  """Return the view that all groups share, or ''."""
  return next(iter(views)) or '' if len(views) == 1 else ''


def _accuracy(
  group: Group, views: Views | None, printed: Printed, *, name_view: bool
) -> Cell:
  """Return mean ± std over clients, with the published number below."""
  if views is None:
    return Cell(NONE)
  means = group.numbers(views, 'mean')
  view = views if isinstance(views, str) else either(views)
  below = [view] if name_view else []
  below += _seeds(means)
  value = float(np.mean(means))
  if view in printed:
    theirs, std, *_ = printed[view]
    words = f'{theirs:.2f}' if std is None else f'{theirs:.2f} ± {std:.2f}'
    below.append(f'published {words} ({value - theirs:+.2f})')
  form = f'{{:.2f}} ± {group.mean(views, "std"):.2f}'
  return number(value, form, tuple(below))


def _by_choice(found: Sequence[Mapping | None]) -> Cell:
  """Return the mean over seeds, ± that of the deviations over clients."""
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
  values = [
    (run.result.get('global') or {}).get('accuracy') for run in group.runs
  ]
  values = [math.nan if value is None else value for value in values]
  return mean(np.array(values, float))


def _interval(group: Group, view: str) -> Cell:
  if len(group.runs) == 1:
    ends = group.first.result['views'][view].get('interval') or [None]
  else:
    means = group.numbers(view, 'mean')
    ends = [float(means.min()), float(means.max())]
  if any(end is None or not math.isfinite(end) for end in ends):
    return Cell(NONE)
  return Cell(f'{ends[0]:.2f} to {ends[1]:.2f}', ends[0])


def _notes(
  groups: Sequence[Group], printed: Sequence[Printed]
) -> tuple[str, ...]:
  """Return the notes below the summary."""
  notes = [
    'Mean ± standard deviation over clients, in percent. Worst tenth: the mean '
    'over the tenth of the clients with the lowest accuracy. Lost: clients '
    'whose accuracy is lower after personalisation than before.'
  ]
  notes += [
    note_on_choice(group.chosen_by_tests, group.label)
    for group in groups
    if group.chosen_by_tests
  ]
  if all(len(group.runs) == 1 for group in groups):
    notes.append('One seed each: the spread over seeds is unknown.')
  left_out: dict[int, list[str]] = {}
  for group in groups:
    most = max(
      one.get('num_left_out') or 0
      for run in group.runs
      for one in run.result['views'].values()
    )
    left_out.setdefault(most, []).append(group.label)
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
  concerns: dict[str, list[str]] = {}
  for place, _, footnotes in shown:
    for note in footnotes:
      concerns.setdefault(note, []).append(place)
  notes += [
    note if len(places) == len(shown) else f'{"; ".join(places)}: {note}'
    for note, places in concerns.items()
  ]
  return tuple(notes)
