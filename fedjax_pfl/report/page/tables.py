"""Tables of accuracies in percent, with published numbers."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from fedjax_pfl.report import finished_runs
from fedjax_pfl.report.page.groups import (
  Group,
  Views,
  before_and_after,
  change_of,
  numbers,
)
from fedjax_pfl.report.page.table_cells import (
  NONE,
  Cell,
  Column,
  Table,
  make_table,
  mean,
  number,
)
from fedjax_pfl.report.plots import Change

# {view: (mean, std, table, footnotes)}; std None: not published.
Printed = Mapping[str, tuple[float, float | None, str, Sequence[str]]]
METHOD = Column('Method', is_number=False)
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
  pairs = [before_and_after(group) for group in groups]
  first = {before for before, _ in pairs}
  last = {finished_runs.either(after) for _, after in pairs}
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
  for group, (before, after), known in zip(groups, pairs, printed, strict=True):
    change = change_of(group)
    rows.append(
      [
        name_cell(group),
        _accuracy(group, before, known, name_view=len(first) > 1),
        _accuracy(group, after, known, name_view=len(last) > 1),
        _gain(group, before, after),
        mean(numbers(group, after, 'worst_decile')),
        _lost(change),
        *[_server(group)] * has_server,
      ]
    )
  return make_table('Summary', columns, rows, _notes(groups, printed))


def all_views(groups: Sequence[Group]) -> Table:
  """Return a row for every view of every group, with all metrics."""
  found = [
    (group, view)
    for group in groups
    for view in finished_runs.views(group.runs[0])
  ]
  kinds = [
    kind
    for kind in MEASURED
    if any(np.isfinite(numbers(*one, kind[0])).any() for one in found)
  ]
  kinds += [(name, name, '') for name in own_metrics(found)]
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
      name_cell(group),
      Cell(view, view),
      *(mean(numbers(group, view, kind), _form(kind)) for kind, *_ in kinds),
      _interval(group, view),
    ]
    for group, view in found
  ]
  notes = (
    'Pooled: over all test images; loss, ECE and MCE (calibration errors, as '
    'shares): means over clients. Interval: of one run 95 %, by resampling its '
    'clients; of several seeds from the lowest to the highest.',
    *["Metrics by other names are the user's: means over clients."]
    * bool(own_metrics(found)),
  )
  return make_table('Every view', columns, rows, notes)


def own_metrics(found: Sequence[tuple[Group, str]]) -> list[str]:
  """Return the names of the users' metrics in these views of groups."""
  scores = [
    run.clients.scores[view] for group, view in found for run in group.runs
  ]
  return list(dict.fromkeys(name for one in scores for name in one.own or ()))


def name_cell(group: Group) -> Cell:
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
  means = numbers(group, views, 'mean')
  spread = np.mean(numbers(group, views, 'std'))
  view = views if isinstance(views, str) else finished_runs.either(views)
  below = [view] if name_view else []
  if len(means) > 1:
    below.append(f'{len(means)} seeds: {means.min():.2f} to {means.max():.2f}')
  value = float(np.mean(means))
  if view in printed:
    theirs, std, *_ = printed[view]
    words = f'{theirs:.2f}' if std is None else f'{theirs:.2f} ± {std:.2f}'
    below.append(f'published {words} ({value - theirs:+.2f})')
  return number(value, f'{{:.2f}} ± {spread:.2f}', tuple(below))


def _gain(group: Group, before: str | None, after: Views) -> Cell:
  if before is None:
    return Cell(NONE)
  gains = numbers(group, after, 'mean')
  return mean(gains - numbers(group, before, 'mean'), '{:+.2f}')


def _lost(change: Change) -> Cell:
  """Return the share of clients that lose by personalisation."""
  if change.before is None:
    return Cell(NONE)
  gains = change.after - change.before
  gains = gains[np.isfinite(gains)]
  if not gains.size:
    return Cell(NONE)
  return number(100 * np.mean(gains < 0), '{:.0f} %')


def _server(group: Group) -> Cell:
  values = [
    (run.result.get('global') or {}).get('accuracy') for run in group.runs
  ]
  values = [math.nan if value is None else value for value in values]
  return mean(np.array(values, float))


def _chosen_by_tests(group: Group) -> list[str]:
  """Return the views of the seeds that the tests have chosen."""
  chosen = [
    finished_runs.chosen_by_tests(finished_runs.views(run), run.result)
    for run in group.runs
  ]
  return [view for view in chosen if view]


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
    finished_runs.note_on_choice(views, group.label)
    for group in groups
    if (views := _chosen_by_tests(group))
  ]
  if all(len(group.runs) == 1 for group in groups):
    notes.append('One seed each: the spread over seeds is unknown.')
  left_out: dict[int, list[str]] = {}
  for group in groups:
    number = max(
      summary.get('num_left_out') or 0
      for run in group.runs
      for summary in run.result['views'].values()
    )
    left_out.setdefault(number, []).append(group.label)
  notes += [
    f'Clients left out of the means, for want of training or test examples: '
    f'{number:,} ({", ".join(labels)}).'
    for number, labels in left_out.items()
    if number
  ]
  views = [view for one in printed for view in one.values()]
  if views:
    sources = dict.fromkeys(dataset for _, _, dataset, _ in views)
    notes.append(
      f'Published: {"; ".join(sources)}; in brackets, ours less theirs.'
    )
  return (*notes, *_footnotes(groups, printed))


def _footnotes(
  groups: Sequence[Group], printed: Sequence[Printed]
) -> list[str]:
  """Return the footnotes of published numbers, and the numbers they concern."""
  concerns: dict[str, list[str]] = {}
  for group, one in zip(groups, printed, strict=True):
    for view, (*_, footnotes) in one.items():
      for note in footnotes:
        concerns.setdefault(note, []).append(f'{group.label}, {view}')
  number = sum(len(one) for one in printed)
  return [
    note if len(views) == number else f'{"; ".join(views)}: {note}'
    for note, views in concerns.items()
  ]


def _form(kind: str) -> str:
  if kind not in {name for name, *_ in MEASURED}:  # the user's own
    return '{:.4g}'
  return f'{{:,.{DIGITS.get(kind, 2)}f}}'


def _interval(group: Group, view: str) -> Cell:
  if len(group.runs) == 1:
    ends = group.runs[0].result['views'][view].get('interval') or [None]
  else:
    means = numbers(group, view, 'mean')
    ends = [float(means.min()), float(means.max())]
  if any(end is None or not math.isfinite(end) for end in ends):
    return Cell(NONE)
  return Cell(f'{ends[0]:.2f} to {ends[1]:.2f}', ends[0])
