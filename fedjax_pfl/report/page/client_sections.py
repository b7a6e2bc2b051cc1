"""The sections about the clients: accuracies, gains, examples."""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report.charts import panels
from fedjax_pfl.report.charts.bars import ends_of, plot_gains
from fedjax_pfl.report.charts.panels import Panel, Section
from fedjax_pfl.report.charts.rows import (
  Levels,
  plot_clients,
  plot_levels,
)
from fedjax_pfl.report.page.groups import Group, views_in_words

MEASURES = (('mean', 'mean'), ('worst tenth', 'worst_decile'))


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
  if not shown:
    return None
  ends = ends_of([group.change for group in shown])
  figures = []
  for group in shown:
    change = group.change
    svg = plot_gains(change, group.client_names, ends)
    words = _describe_gains(change.gains)
    figures.append(Panel(group.label, svg, words, css=group.css))
  words = (
    'One bar for each client, from the largest gain to the largest loss; all '
    'charts share one axis.'
  )
  return Section('What each client gained or lost', words, figures)


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
