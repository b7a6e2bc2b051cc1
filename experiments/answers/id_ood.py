"""Own and other classes, before and after personalisation (Table 20)."""

import numpy as np

from experiments.answers.common import Answer, Log, Opened, Options, make_figure
from fedjax_pfl.analysis.classes import Split, summary
from fedjax_pfl.analysis.id_ood import id_ood
from fedjax_pfl.analysis.runs import load_states
from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.types import ClientData
from fedjax_pfl.report import plots
from fedjax_pfl.report.saving import number
from fedjax_pfl.report.text_table import align, cell
from fedjax_pfl.training.seed_run import random_streams

WITH_DATA = True
HEADER = ('run', 'view', 'client', 'own_percent', 'other_percent')
WORDS = {'own': 'classes of the client', 'other': 'all other classes'}


def ask(runs: list[Opened], options: Options, log: Log) -> Answer:
  """Evaluate the last models of every run in its first and its last view."""
  splits = {run.label: measure(run, options.clients, log) for run in runs}
  lines = [('method', 'view', *WORDS.values())]
  rows = []
  for run in runs:
    for view, split in splits[run.label].items():
      cells = [cell(summary(values)) for values in split]
      lines.append((run.name, view, *cells))
      for client, pair in enumerate(zip(*split, strict=True)):
        rows.append([run.label, view, client, *map(number, pair)])
    for kind, words in WORDS.items():
      left_out = summary(getattr(split, kind))['num_left_out']
      if left_out:
        log(
          f'{run.name}: {left_out} of {len(split.own)} clients have no test '
          f'image of {words}, and are left out there.'
        )
  return Answer(draw(splits), HEADER, rows, align(lines))


def measure(run: Opened, number: int, log: Log) -> dict[str, Split]:
  """Return {view: accuracies [K]} with the models that the run evaluated."""
  views = run.settings['views']
  server, clients = load_states(run.experiment, run.path, log)
  number = min(
    number or run.settings['num_clients'], run.settings['num_clients']
  )
  few = run.experiment._replace(
    train=first_clients(run.experiment.train, number),
    test=first_clients(run.experiment.test, number),
  )
  with progress.progress(
    f'evaluation {run.name}', number, unit='client'
  ) as bar:
    return id_ood(
      few,
      server,
      trees.gather(clients, np.arange(number)),
      tuple(dict.fromkeys([views[0], views[-1]])),
      random_streams(run.settings['seed'])['evaluation'],
      bar.update,
    )


def first_clients(data: ClientData, number: int) -> ClientData:
  """Return the data of so many first clients, of one pool."""
  return data._replace(index=data.index[:number], count=data.count[:number])


def draw(splits: dict[str, dict[str, Split]]):
  """Return a figure: own classes on the left, other classes on the right."""
  figure, axes = make_figure(2, 1.5 + 1.8 * len(splits), 4.6)
  for ax, (kind, words) in zip(axes, WORDS.items(), strict=True):
    changes = {}
    for label, views in splits.items():
      (first, *_), (*_, last) = views, views
      before = getattr(views[first], kind) if len(views) > 1 else None
      after = getattr(views[last], kind)
      changes[label] = plots.Change(before, after, (first, last))
    plots.plot_clients(ax, changes)
    ax.set_title(words.capitalize(), fontsize=11)
    if all(np.isnan(change.after).all() for change in changes.values()):
      ax.text(0.5, 0.5, 'no test image', ha='center', transform=ax.transAxes)
  axes[1].set_ylabel('')
  return figure
