"""The sections about the clients: accuracies, gains, examples, pairs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedjax_pfl.report.charts import panels
from fedjax_pfl.report.charts.bars import ends_of, plot_gains
from fedjax_pfl.report.charts.panels import Panel, Section
from fedjax_pfl.report.charts.rows import (
  Change,
  Levels,
  plot_clients,
  plot_levels,
)
from fedjax_pfl.report.page.groups import Group, views_in_words
from fedjax_pfl.report.page.tables import Table

MEASURES = (('mean', 'mean'), ('worst tenth', 'worst_decile'))


class Pair(NamedTuple):
  """The accuracies of the same clients with two methods, in percent."""

  label: str
  method: str  # the algorithm whose colour is used
  first: np.ndarray  # [K]
  second: np.ndarray  # [K]
  names: Sequence[str]  # of the clients
  note: str


class Opening(NamedTuple):
  """What a page may begin with: a question about its runs, and the answers.

  Its heading and first sentence stand in the place of the page's own, a table
  before the summary, and a chart for each pair of methods that share clients.
  """

  title: str
  lead: str
  table: Table
  pairs: Sequence[Pair] = ()


def spread(groups: Sequence[Group]) -> Section:
  """Return the accuracies of all clients, their mean and worst decile."""
  levels = [
    Levels(
      group.label,
      group.css,
      [
        (word, group.mean(group.before, name), group.mean(group.after, name))
        for word, name in MEASURES
      ],
    )
    for group in groups
  ]
  return Section(
    'Before and after personalisation',
    f'The views compared: {views_in_words(groups)}.',
    [
      Panel(
        'Every client',
        plot_clients([group.change for group in groups]),
        'Dot: a client. Box: the middle half. Bar: the mean.',
      ),
      Panel(
        'Mean and worst tenth',
        plot_levels(levels),
        'Hollow: before. Filled: after.',
      ),
    ],
  )


def gains(groups: Sequence[Group]) -> Section | None:
  """Return each client's gain or loss; None without a view before."""
  shown = [group for group in groups if group.before is not None]
  return _bars(
    'What each client gained or lost',
    'One bar for each client, from the largest gain to the largest loss',
    'gain',
    [(group.change, group.client_names, '') for group in shown],
  )


def pairs(opening: Opening, groups: Sequence[Group]) -> Section | None:
  """Return the section of pairs; None without any."""
  css = {group.first.method: group.css for group in groups}
  return _bars(
    'Client by client',
    'One bar for each client: its accuracy with the first method less that '
    'with the second, from the largest to the smallest',
    'difference',
    [
      (
        Change(one.label, css.get(one.method, ''), one.second, one.first),
        one.names,
        one.note,
      )
      for one in opening.pairs
    ],
  )


def _bars(
  title: str,
  text: str,
  word: str,
  shown: Sequence[tuple[Change, Sequence[str], str]],
) -> Section | None:
  """Return a chart for each (change, names, note), on one axis."""
  if not shown:
    return None
  ends = ends_of([change for change, *_ in shown])
  figures = [
    Panel(
      change.label,
      plot_gains(change, names, ends, word=word),
      note or _describe_gains(change.gains),
      css=change.css,
    )
    for change, names, note in shown
  ]
  return Section(title, f'{text}; all charts share one axis.', figures)


def partition(groups: Sequence[Group]) -> Section:
  """Return the examples of the clients: a chart for each partition."""
  found, unknown = {}, []
  for group in groups:
    run = group.first
    if run.clients.train_classes is None:
      unknown.append(group.label)
    else:
      found.setdefault(run.record.get('data'), (run, []))[1].append(group.label)
  figures = []
  for run, labels in found.values():
    suffix = f' ({"; ".join(labels)})' if len(found) > 1 else ''
    held, ids = run.clients, run.clients.ids
    figures += [
      panels.partition(f'Training{suffix}', held.train_classes, ids),
      panels.partition(f'Testing{suffix}', held.test_classes, ids),
    ]
  words = []
  if found:
    words.append(
      'Class against client: the area of a dot is the number of examples.'
    )
  if found and any(len(group.runs) > 1 for group in groups):
    words.append('Of several seeds, the first is drawn.')
  if unknown:
    words.append(
      f'Not recorded by runs of an earlier version: {"; ".join(unknown)}.'
    )
  return Section('Examples of the clients', ' '.join(words), figures)


def _describe_gains(values: np.ndarray) -> str:
  values = values[np.isfinite(values)]
  if not values.size:
    return 'No client has both accuracies.'
  won, lost = int((values > 0).sum()), int((values < 0).sum())
  return (
    f'{won:,} of {values.size:,} clients gained, {lost:,} lost; '
    f'median {np.median(values):+.1f}.'
  )
