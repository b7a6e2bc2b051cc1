"""The sections of the page in their order, and those about clients."""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report import finished_runs
from fedjax_pfl.report.page import curve_sections
from fedjax_pfl.report.page.client_charts import (
  Clients,
  Levels,
  plot_clients,
  plot_gains,
  plot_levels,
)
from fedjax_pfl.report.page.groups import (
  Group,
  Views,
  before_and_after,
  change_of,
  numbers,
  seeds_of,
)
from fedjax_pfl.report.page.partition_chart import (
  is_wide,
  plot_partition,
  shown_clients,
)
from fedjax_pfl.report.page.sections import Panel, Section
from fedjax_pfl.report.partition_figure import describe_sizes

MEASURES = (('mean', 'mean'), ('worst tenth', 'worst_decile'))


def make_sections(groups: Sequence[Group]) -> list[Section]:
  """Return the sections of the page in their order."""
  sections = [
    curve_sections.learning(groups),
    spread(groups),
    gains(groups),
    curve_sections.finetuning(groups),
    partition(groups),
  ]
  return [section for section in sections if section]


def spread(groups: Sequence[Group]) -> Section:
  """Return the accuracies of all clients, their mean and worst decile."""
  levels = []
  for group in groups:
    before, after = before_and_after(group)
    pairs = [
      (
        word,
        np.nan if before is None else _mean(group, before, quantity),
        _mean(group, after, quantity),
      )
      for word, quantity in MEASURES
    ]
    levels.append(Levels(group.label, group.css, pairs))
  return Section(
    'Before and after personalisation',
    f'The views compared: {_views(groups)}.',
    [
      Panel(
        'Every client',
        plot_clients([_clients(group) for group in groups]),
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
  chosen = [group for group in groups if change_of(group).before is not None]
  if not chosen:
    return None
  changes = [_clients(group) for group in chosen]
  values = [change.after - change.before for change in changes]
  known = np.concatenate(values)
  known = known[np.isfinite(known)]
  ends = (min(0.0, known.min(initial=0)), max(1.0, known.max(initial=0)))
  panels = [
    Panel(
      group.label,
      plot_gains(change, _names(group), ends),
      _describe_gains(value),
      css=group.css,
    )
    for group, change, value in zip(chosen, changes, values, strict=True)
  ]
  words = (
    'One bar for each client, from the largest gain to the largest loss; all '
    'charts share one axis.'
  )
  return Section('What each client gained or lost', words, panels)


def partition(groups: Sequence[Group]) -> Section:
  """Return the examples of the clients: a chart for each partition."""
  found, unknown = {}, []
  for group in groups:
    run = group.runs[0]
    if run.clients.train_classes is None:
      unknown.append(group.label)
    else:
      found.setdefault(run.record.get('data'), (run, []))[1].append(group.label)
  panels = []
  for run, labels in found.values():
    suffix = f' ({"; ".join(labels)})' if len(found) > 1 else ''
    panels += _partition_panels(run, suffix)
  words = 'Class against client: the area of a dot is the number of examples.'
  if any(len(group.runs) > 1 for group in groups):
    words += ' Of several seeds, the first is drawn.'
  if not found:
    words = ''
  if unknown:
    words += (
      f' Not recorded by runs of an earlier version: {"; ".join(unknown)}.'
    )
  return Section('Examples of the clients', words.strip(), panels)


def _partition_panels(
  run: finished_runs.FinishedRun, suffix: str
) -> list[Panel]:
  clients = run.clients
  panels = []
  for word, counts in (
    ('Training', clients.train_classes),
    ('Testing', clients.test_classes),
  ):
    shown = shown_clients(len(counts))
    note = f'{describe_sizes(counts)}. Largest dot: {counts.max():,}.'
    if len(shown) < len(counts):
      note += f' Drawn: {len(shown)} of {len(counts):,} clients, evenly spaced.'
    svg = plot_partition(counts, clients.ids, max(int(counts.max()), 1))
    panels.append(Panel(word + suffix, svg, note, is_wide=is_wide(counts)))
  return panels


def _clients(group: Group) -> Clients:
  change = change_of(group)
  return Clients(group.label, group.css, change.before, change.after)


def _mean(group: Group, views: Views, quantity: str) -> float:
  return float(np.mean(numbers(group, views, quantity)))


def _names(group: Group) -> list[str]:
  """Return names for the clients of all seeds."""
  several = len(group.runs) > 1
  return [
    f'seed {seed}, client {client}' if several else f'client {client}'
    for seed, run in zip(seeds_of(group), group.runs, strict=True)
    for client in run.clients.ids
  ]


def _views(groups: Sequence[Group]) -> str:
  """Return 'initial and finetuned', or the views of each group."""
  words = {}
  for group in groups:
    before, after = before_and_after(group)
    name = finished_runs.either(after)
    words[group.label] = name if before is None else f'{before} and {name}'
  if len(set(words.values())) == 1:
    return next(iter(words.values()))
  by_words: dict[str, list[str]] = {}
  for label, word in words.items():
    by_words.setdefault(word, []).append(label)
  return '; '.join(
    f'{word} ({", ".join(labels)})' for word, labels in by_words.items()
  )


def _describe_gains(gains: np.ndarray) -> str:
  gains = gains[np.isfinite(gains)]
  if not gains.size:
    return 'No client has both accuracies.'
  won, lost = int((gains > 0).sum()), int((gains < 0).sum())
  return (
    f'{won:,} of {gains.size:,} clients gained, {lost:,} lost; '
    f'median {np.median(gains):+.1f}.'
  )
