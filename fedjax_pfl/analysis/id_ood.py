"""Accuracy on a client's own classes and on others (FedBABU, Table 20).

ID: classes of which the client has training examples; OOD: all others. Each
view is evaluated once on all test examples of a client, own classes and others
in the same batches, so that they share the statistics of BatchNorm. A client
whose tests are all of its own classes has no accuracy on others: NaN.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from fedjax_pfl.analysis.open_run import (
  Answer,
  Log,
  OpenRun,
  Options,
  load_states,
)
from fedjax_pfl.analysis.own_classes import (
  Split,
  owned_classes,
  split_accuracy,
  summary,
)
from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.target import target_kind
from fedjax_pfl.core.types import ClientData, Key
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.metrics import ClassScores, score_classes
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.charts.panels import Panel
from fedjax_pfl.report.charts.rows import Change, plot_clients
from fedjax_pfl.report.figure_file import format_number
from fedjax_pfl.report.styles import style_of
from fedjax_pfl.report.text_table import align, mean_and_std
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.state import random_streams

NEEDS_DATA = True
HEADER = ('run', 'view', 'client', 'own_percent', 'other_percent')
TITLES = {'own': 'classes of the client', 'other': 'all other classes'}
BLOCK = 10  # clients evaluated between two updates of the progress bar


def answer(runs: Sequence[OpenRun], options: Options, log: Log) -> Answer:
  """Evaluate the last models of every run in its first and its last view."""
  splits = {run.label: measure(run, options.clients, log) for run in runs}
  lines = [('method', 'view', *TITLES.values())]
  rows = []
  for run in runs:
    for view, split in splits[run.label].items():
      cells = [mean_and_std(summary(values)) for values in split]
      lines.append((run.name, view, *cells))
      for client, pair in enumerate(zip(*split, strict=True)):
        rows.append([run.label, view, client, *map(format_number, pair)])
    for kind, title in TITLES.items():
      left_out = summary(getattr(split, kind))['num_left_out']
      if left_out:
        log(
          f'{run.name}: {left_out} of {len(split.own)} clients have no test '
          f'image of {title}, and are left out there.'
        )
  return Answer(draw(splits), HEADER, rows, align(lines))


def measure(run: OpenRun, num_clients: int, log: Log) -> dict[str, Split]:
  """Return {view: accuracies [K]} of the first clients; 0 means all of them."""
  views = run.settings.evaluation.views
  server, clients = load_states(run.experiment, run.path, log)
  total = run.settings.data.num_seen_clients
  number = min(num_clients or total, total)
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
      random_streams(run.settings.seed)['evaluation'],
      bar.update,
    )


def id_ood(
  experiment: Experiment,
  server: Server,
  clients: Client,
  views: Sequence[str],
  key: Key,
  on_progress: Callable[[int], None] | None = None,
) -> dict[str, Split]:
  """Return {view: own and other [K]} with logits over all classes.

  With the key of the run's evaluation, the models are those it evaluated.
  """
  scores, owned = score_by_class(
    experiment, server, clients, views, key, on_progress
  )
  return {
    view: split_accuracy(score.correct, score.count, owned)
    for view, score in scores.items()
  }


def score_by_class(
  experiment: Experiment,
  server: Server,
  clients: Client,
  views: Sequence[str],
  key: Key,
  on_progress: Callable[[int], None] | None = None,
) -> tuple[dict[str, ClassScores], np.ndarray]:
  """Return {view: correct and count [K, Y]}, and the owned classes [K, Y]."""
  num_classes = experiment.dataset.num_classes
  evaluate = make_evaluate(
    experiment.stages[-1].algorithm,
    experiment.task.normalise,
    views,
    # As in the run itself: where nothing is launched, one after the other.
    clients_per_chunk=BLOCK if target_kind().launches else 1,
    score_fn=partial(score_classes, num_classes),
  )
  scores = evaluate_clients(
    evaluate,
    views,
    server,
    clients,
    *experiment.eval_data,
    key,
    block=BLOCK,
    on_progress=on_progress,
  )
  return scores, owned_classes(experiment.train, num_classes)


def first_clients(data: ClientData, number: int) -> ClientData:
  """Return the data of the first clients; the pool of examples stays whole."""
  return data._replace(index=data.index[:number], count=data.count[:number])


def draw(splits: dict[str, dict[str, Split]]):
  """Return a figure: own classes on the left, other classes on the right."""
  styles = {label: style_of(label) for label in splits}
  css = {label: f'c{at}' for at, label in enumerate(splits)}
  panels = []
  for kind, title in TITLES.items():
    rows = []
    for label, views in splits.items():
      *before, after = (getattr(split, kind) for split in views.values())
      rows.append(
        Change(
          styles[label].name, css[label], before[0] if before else None, after
        )
      )
    panels.append(Panel(title.capitalize(), plot_clients(rows)))
  views = dict.fromkeys(' and '.join(one) for one in splits.values())
  notes = [
    f'Before and after: {"; ".join(views)}. Dot: a client. Box: the middle '
    'half. Bar: the mean.'
  ]
  colours = {css[label]: style.colour for label, style in styles.items()}
  return picture.draw('', panels, colours, notes=notes)
