"""Accuracy on a client's own classes and on others (FedBABU, Table 20).

  acc_ID  = 100 sum_{c in O} correct_c / sum_{c in O} count_c
  acc_OOD = the same for c not in O,     O = the client's training classes

Each view is evaluated once on all test examples of a client, own classes and
others in the same batches, so that they share the statistics of BatchNorm. A
client whose tests are all of its own classes has no accuracy on others: NaN.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.analysis import open_run
from fedjax_pfl.core import progress, trees
from fedjax_pfl.core.algorithm import Client, Server
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.target import launches_kernels
from fedjax_pfl.core.types import AnyPath, Array, Scores
from fedjax_pfl.data.client_data import label_counts_of_clients
from fedjax_pfl.evaluation.evaluate import evaluate_clients, make_evaluate
from fedjax_pfl.evaluation.metrics import fold_batches
from fedjax_pfl.evaluation.summary import accuracies
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts.figure_file import (
  check_output,
  format_number,
  save,
)
from fedjax_pfl.results.charts.rows import MEANING, Change, plot_clients
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page.styles import style_of
from fedjax_pfl.results.runs.run import each_once, first_and_after
from fedjax_pfl.results.tables.table import align, mean_and_std
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings import Settings
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.state import random_streams

HEADER = ('run', 'view', 'client', 'own_percent', 'other_percent')
BLOCK = 10  # clients evaluated between two updates of the progress bar


class OpenRun(NamedTuple):
  """A finished run, and its experiment, rebuilt."""

  label: str  # the method; with the path where methods repeat
  path: Path
  settings: Settings
  experiment: Experiment

  @property
  def name(self) -> str:
    """Return the name of the method; with the path where methods repeat."""
    method = self.settings.algorithm
    return paper_name(method) + self.label.removeprefix(method)


class ClassScores(NamedTuple):
  """The scores of one view of every client, class by class."""

  correct: Array  # [K, Y] number of correct predictions
  count: Array  # [K, Y] number of test examples


class Split(NamedTuple):
  """Something of the classes in the client's training data, and of others."""

  own: Any  # ID
  other: Any  # OOD


TITLES = Split('classes of the client', 'all other classes')
Splits = Mapping[str, Mapping[str, Split]]  # {run: {view: accuracies [K]}}


def analyse(
  workdirs: Sequence[AnyPath],
  output: AnyPath,
  clients: int,
  log: open_run.Log,
  edit: open_run.Edit | None,
) -> Path:
  """Save the figure of the first clients (0: all) and its CSV; log a table.

  The last models of every run are evaluated, before and after personalisation.
  """
  check_output(output)
  runs = open_runs(workdirs, log, edit)
  for run in runs:
    check_own_halves(run)
  splits = {run.label: measure(run, clients, log) for run in runs}
  lines, rows = [('method', 'view', *TITLES)], []
  for run in runs:
    name = run.name
    for view, split in splits[run.label].items():
      used = [values[~np.isnan(values)] for values in split]
      numbers = [
        {'mean': v.mean(), 'std': v.std()} if v.size else None for v in used
      ]
      lines.append((name, view, *map(mean_and_std, numbers)))
      for client, pair in enumerate(zip(*split, strict=True)):
        rows.append([run.label, view, client, *map(format_number, pair)])
    for title, values in zip(TITLES, split, strict=True):
      if left_out := np.isnan(values).sum():
        log(
          f'{name}: {left_out} of {values.size} clients have no test '
          f'image of {title}, or none for training, and are left out there.'
        )
  log(align(lines))
  views = dict.fromkeys(map(' and '.join, splits.values()))
  notes = [f'The views compared: {"; ".join(views)}. {MEANING}']
  figure = picture.draw('', *draw(runs, splits), notes=notes)
  return save(figure, output, HEADER, rows)


def open_runs(
  workdirs: Sequence[AnyPath], log: open_run.Log, edit: open_run.Edit | None
) -> list[OpenRun]:
  """Return the runs, each once, with their experiments."""
  read = {
    path: open_run.read_run(path, log, edit) for path in each_once(workdirs)
  }
  methods, runs = [settings.algorithm for settings, _ in read.values()], []
  for path, (settings, data) in read.items():
    label = settings.algorithm
    if methods.count(label) > 1:
      label = f'{label} ({path})'
    rebuilt = open_run.rebuild(settings, data, log, edit)
    runs.append(OpenRun(label, path, settings, rebuilt))
  return runs


def check_own_halves(run: OpenRun) -> None:
  """Refuse other tests of a run whose clients adapt on half of their tests."""
  if run.settings.evaluation.adapt_on != 'test_half':
    return
  if run.experiment.data_id == run_dir.load_config(run.path)['data']:
    return
  raise bad_input(
    'adapt_on',
    got=f'test_half, and other tests than those of {run.path}',
    expected='the tests of the run, or adaptation on training examples: half '
    'of other tests would show clients classes that they have not got',
    choices=['--config.adapt_on=train', 'no --config.test_partition'],
  )


def measure(run: OpenRun, clients: int, log: open_run.Log) -> dict[str, Split]:
  """Return {view: accuracies [K]} of the first clients; 0: of all."""
  experiment, total = run.experiment, run.settings.data.num_seen_clients
  number = min(clients or total, total)
  server, states = open_run.load_states(experiment, run.path, log)

  def first(data):  # the pool of examples stays whole
    index, count = data.index[:number], data.count[:number]
    return data._replace(index=index, count=count)

  train, test = first(experiment.train), first(experiment.test)
  few = experiment.with_data(train=train, test=test)
  states = trees.gather(states, np.arange(number))
  known, result = run.settings.final_views, run_dir.load_result(run.path)
  compared = first_and_after(known, result if 'select' in result else {})
  if compared[1] not in known:  # with other views than the run's
    compared = first_and_after(known, {})
  views = tuple(filter(None, compared))
  title, count = f'evaluation {run.name}', np.asarray(train.count)
  splits = split_by_class(few, (server, states), views, title)
  accuracy = lambda scores: accuracies(scores, count)
  return {view: Split(*map(accuracy, split)) for view, split in splits.items()}


def split_by_class(
  experiment: Experiment,
  states: tuple[Server, Client],
  views: Sequence[str],
  title: str,
) -> dict[str, Split]:
  """Return {view: scores [K] on own classes and on others}, with a bar.

  Client k owns a class of which it has a training example. With the random
  numbers of the run's evaluation: its own models.
  """
  num_classes = experiment.dataset.num_classes
  evaluate = make_evaluate(
    experiment.stages[-1].algorithm,
    experiment.task.normalise,
    views,
    # As in the run itself: where nothing is launched, one after the other.
    clients_per_chunk=BLOCK if launches_kernels() else 1,
    score_fn=partial(score_classes, num_classes),
  )
  owned = label_counts_of_clients(experiment.train, num_classes) > 0  # [K, Y]
  key = random_streams(experiment.settings.seed)['evaluation']
  with progress.progress(title, len(owned), unit='client') as bar:
    scores = evaluate_clients(
      *(evaluate, views, *states, *experiment.eval_data, key),
      block=BLOCK,
      on_progress=bar.update,
    )
  within = lambda mask, counts: np.sum(np.where(mask, counts, 0), -1)
  return {
    view: Split(
      *(Scores(*(within(mask, x) for x in score)) for mask in (owned, ~owned))
    )
    for view, score in scores.items()
  }


def score_classes(num_classes: int, *given: Any) -> ClassScores:
  """Return right predictions and examples of every class: as `score_view`."""

  def add(carry, logits, y, real):
    hit = (jnp.argmax(logits, -1) == y) & real
    return ClassScores(
      carry.correct.at[y].add(hit.astype(jnp.int32)),
      carry.count.at[y].add(real.astype(jnp.int32)),
    )

  none = jnp.zeros(num_classes, jnp.int32)  # [Y]
  return fold_batches(add, ClassScores(none, none), *given)


def draw(
  runs: Sequence[OpenRun], splits: Splits
) -> tuple[list[Panel], dict[str, str]]:
  """Return two panels, own classes and others, and {css class: colour}."""
  css = [f'c{at}' for at in range(len(runs))]
  colours = [style_of(run.settings.algorithm).colour for run in runs]
  panels = []
  for kind, title in enumerate(TITLES):
    lines = []
    for run, line in zip(runs, css, strict=True):
      views = splits[run.label].values()
      *before, after = (split[kind] for split in views)
      first = before[0] if before else None
      lines.append(Change(run.name, line, first, after))
    panels.append(Panel(title.capitalize(), plot_clients(lines)))
  return panels, dict(zip(css, colours, strict=True))
