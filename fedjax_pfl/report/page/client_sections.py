"""What the clients of a page have and hold, drawn, and the page's order."""

from collections.abc import Sequence

import numpy as np

from fedjax_pfl.report import reading
from fedjax_pfl.report.page import curve_panels
from fedjax_pfl.report.page import groups as lines
from fedjax_pfl.report.page.client_charts import (
  Clients,
  Levels,
  plot_clients,
  plot_gains,
  plot_levels,
)
from fedjax_pfl.report.page.groups import Group
from fedjax_pfl.report.page.holdings import (
  is_wide,
  plot_holdings,
  shown_clients,
)
from fedjax_pfl.report.page.sections import Panel, Section
from fedjax_pfl.report.partition_figure import describe_sizes

MEASURES = (('mean', 'mean'), ('worst tenth', 'worst_decile'))


def make_panels(groups: Sequence[Group]) -> list[Section]:
  """Return the sections of a page, in the order of reading."""
  sections = [
    curve_panels.learning(groups),
    spread(groups),
    gains(groups),
    curve_panels.finetuning(groups),
    partition(groups),
  ]
  return [section for section in sections if section]


def spread(groups: Sequence[Group]) -> Section:
  """Return all clients before and after, their mean and the worst tenth."""
  levels = []
  for group in groups:
    before, after = reading.before_and_after(group.runs[0])
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
  """Return what each client gained or lost; None: there is no view before."""
  chosen = [group for group in groups if lines.change(group).before is not None]
  if not chosen:
    return None
  changes = [_clients(group) for group in chosen]
  values = [one.after - one.before for one in changes]
  known = np.concatenate(values)
  known = known[np.isfinite(known)]
  ends = (min(0.0, known.min(initial=0)), max(1.0, known.max(initial=0)))
  panels = [
    Panel(
      group.label,
      plot_gains(one, _names(group), ends),
      _describe_gains(value),
      css=group.css,
    )
    for group, one, value in zip(chosen, changes, values, strict=True)
  ]
  words = (
    'One bar for each client, from the largest gain to the largest loss; all '
    'drawings have one axis.'
  )
  return Section('What each client gained or lost', words, panels)


def partition(groups: Sequence[Group]) -> Section:
  """Return what the clients hold: a drawing for each division of the data."""
  title, found, untold = 'What the clients hold', {}, []
  for group in groups:
    run = group.runs[0]
    if run.clients.train_classes is None:
      untold.append(group.label)
    else:
      found.setdefault(run.record.get('data'), (run, []))[1].append(group.label)
  panels = []
  for run, labels in found.values():
    suffix = f' ({"; ".join(labels)})' if len(found) > 1 else ''
    panels += _holdings(run, suffix)
  words = 'Class against client: the area of a dot is the number of examples.'
  if any(len(group.runs) > 1 for group in groups):
    words += ' Of several seeds, the first is drawn.'
  if not found:
    words = ''
  if untold:
    words += (
      f' Not told by the directory of an earlier version: {"; ".join(untold)}.'
    )
  return Section(title, words.strip(), panels)


def _holdings(run: reading.Finished, suffix: str) -> list[Panel]:
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
    svg = plot_holdings(counts, clients.ids, max(int(counts.max()), 1))
    panels.append(Panel(word + suffix, svg, note, is_wide=is_wide(counts)))
  return panels


def _clients(group: Group) -> Clients:
  change = lines.change(group)
  return Clients(group.label, group.css, change.before, change.after)


def _mean(group: Group, view: str, quantity: str) -> float:
  return float(np.mean(lines.numbers(group, view, quantity)))


def _names(group: Group) -> list[str]:
  """Return what the clients of all seeds are called."""
  several = len(group.runs) > 1
  return [
    f'seed {seed}, client {one}' if several else f'client {one}'
    for seed, run in zip(lines.seeds(group), group.runs, strict=True)
    for one in run.clients.ids
  ]


def _views(groups: Sequence[Group]) -> str:
  """Return 'initial and finetuned', or which line has which."""
  pairs = {
    group.label: reading.before_and_after(group.runs[0]) for group in groups
  }
  words = {
    label: after if before is None else f'{before} and {after}'
    for label, (before, after) in pairs.items()
  }
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
