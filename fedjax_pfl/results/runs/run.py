"""Read the directories of finished runs for a report."""

import collections
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.example_losses import CROSS_ENTROPY
from fedjax_pfl.core.rules import is_number, one_of
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.data.datasets import OWN
from fedjax_pfl.data.held_out import order_clients
from fedjax_pfl.data.partition import SAME_CLIENTS
from fedjax_pfl.evaluation.choices import FINETUNED, INITIAL, main_view
from fedjax_pfl.evaluation.measures import Measure, main_of, over_clients
from fedjax_pfl.evaluation.summary import accuracies, summarise, values_by_name
from fedjax_pfl.runs import client_scores, result_file, run_dir
from fedjax_pfl.runs.client_scores import VALIDATION, Clients
from fedjax_pfl.settings import FIELDS, Settings, defaults, parse_config
from fedjax_pfl.training.divergence import sentence_of

Result = Mapping[str, Any]  # of result.json
# What divides the images among clients, but for those who come later.
DIVISION = {name for name, field in FIELDS.items() if field.section == 'data'}
DIVISION -= {'preprocessing', 'unseen_clients', 'data_dir', 'loss'}
MOST_NAMED = 6  # clients that a run ends with, one by one
DEFAULT = 'default'  # of a hyperparameter that a config does not give

DATASETS = {  # as papers write them
  'cifar10': 'CIFAR-10',
  'cifar100': 'CIFAR-100',
  'emnist/byclass': 'EMNIST',
  'tiny_imagenet': 'Tiny ImageNet',
}


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run directory, or a later evaluation in it; read when asked."""

  path: Path
  record: dict[str, Any]  # config.json: the config, and what it ran on
  result: dict[str, Any]  # result.json
  stored: Callable[[], Clients]  # clients.npz, read once
  # Hyperparameters that only other runs of its method give, with a word.
  others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  # The clients, as `in_partition` calls them, that all runs beside it have.
  shared: Sequence[int] | Sequence[str] | None = None

  @functools.cached_property
  def config(self) -> dict[str, Any]:
    """Return every field, those of later versions and of `others` too."""
    config = with_defaults(self.record['config'])
    hp = {**self.others, **config.get('hp', {})}
    return {**config, 'hp': hp} if hp else config

  @functools.cached_property
  def settings(self) -> Settings:
    return settings_in(self.record)

  @functools.cached_property
  def metrics(self) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl; none of a later evaluation."""
    known = (self.path / run_dir.METRICS).exists()
    return run_dir.load_metrics(self.path) if known else []

  @functools.cached_property
  def clients(self) -> Clients:
    clients = self.stored()
    if self.shared is None:
      return clients
    row_of = {who: row for row, who in enumerate(self.in_partition(clients))}
    rows = np.array([row_of[client] for client in self.shared])
    return client_scores.take(clients, rows, self.path)

  def in_partition(self, clients: Clients) -> list[int] | list[str]:
    """Return who took part, [K]: names, or places in the partition."""
    if clients.names is not None:
      return clients.names.tolist()
    unseen = 0 if clients.unseen is None else len(clients.unseen.ids)
    number = len(clients.ids)
    return order_clients(number + unseen, unseen, self.seed)[:number].tolist()

  @property
  def method(self) -> str:
    return self.result['algorithm']

  @property
  def seed(self) -> Any:
    return self.config.get('seed')

  @property
  def views(self) -> list[str]:
    """Return the views in the order of the config."""
    known = list(self.clients.scores)
    asked = [view for view in self.config.get('views', ()) if view in known]
    return list(dict.fromkeys([*asked, *known]))

  @property
  def compared(self) -> tuple[str | None, str]:
    """Return the views before, or None, and after personalisation."""
    return first_and_after(self.views, self.result)

  @property
  def dataset(self) -> str:
    """Return the name of the data set; of the user's own, file and digest."""
    name = self.result['dataset']
    if name not in OWN:
      return name
    digest = str(self.record.get('data', '')).partition('-')[0]
    file = Path(self.config.get('data_dir', '')).name
    return f'{file or name} ({digest})'

  @property
  def data(self) -> str:
    """Return the fingerprint of the data, without that of an initial model."""
    data = str(self.record.get('data')).partition('+')[0]
    if self.shared is None:
      return data
    return f'{data.partition("-")[0]}-{len(self.shared)} shared'

  @property
  def measure(self) -> Measure:
    """Return what its accuracies are; of numbers and events another one."""
    return main_of(self.config.get('loss', CROSS_ENTROPY))

  def accuracy(self, view: str) -> np.ndarray:
    """Return the accuracy of every client in percent, [K]."""
    return accuracies(self.clients.scores[view], self.clients.counted)

  def measured(self, view: str) -> dict[str, np.ndarray]:
    """Return each measure of the clients by name, [K]."""
    return values_by_name(self.clients.scores[view], self.clients.counted)

  def summary(self, view: str | None, part: str = 'views') -> Result:
    """Return the numbers of a view; {} without it.

    `part` 'unseen' is that of the clients who came after training.
    """
    return self._summaries.get((part, view), {})

  @functools.cached_property
  def _summaries(self) -> dict[tuple[str, str], Result]:
    return {
      (part, view): self._summary(view, part)
      for part in ('views', 'unseen')
      for view in self.result.get(part, ())
    }

  def _summary(self, view: str, part: str) -> Result:
    """Compute again what follows from accuracies: a run may be older."""
    known = self.result[part][view]
    clients = self.clients if part == 'views' else self.clients.unseen
    if clients is None:
      return known
    scores = clients.scores[view]
    if part == 'views' and self.shared is not None:
      return summarise(scores, clients.counted, self.measure.sign)
    accuracy = accuracies(scores, clients.counted)
    more = over_clients(accuracy, scores.count, self.measure.sign)
    return {**known, **more, **(self.left_out if part == 'views' else {})}

  @property
  def left_out(self) -> dict[str, float]:
    """Return whom a robust server left out; {} of another."""
    return self.result.get('lies', {}).get('left_out', {})

  @property
  def has_same_clients(self) -> bool:
    """Return whether client k is the same one with every seed."""
    return are_same_clients(self.config)

  def on_validation(self, measure: str) -> dict[str, np.ndarray]:
    """Return a measure of the clients [K] on validation examples, by view.

    Of all views that may be chosen, in order of preference, after the last
    round; where the run has chosen a round and a view, of these, under ''. {}
    without such examples.
    """
    count, chosen = self.clients.counted, self.clients.validation
    if chosen is None:
      return {}
    scores = {'': chosen}
    if self.result.get('select') != 'validation':
      known = client_scores.last(self.path, VALIDATION)
      scores = known or {self.compared[1]: chosen}
    measured = {}
    for view, of_view in scores.items():
      values = values_by_name(of_view, count)
      one_of(
        values,
        f'a measure that {self.path} has on validation examples',
        'a run of before, or without this metric',
      ).check('tune_by', measure)
      measured[view] = values[measure]
    return measured

  def curve(self, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rounds and values [T] of a number in the metrics."""
    # None: it was not finite.
    known = [line for line in self.metrics if is_number(line.get(name))]
    points = [(line['round'], line[name]) for line in known]
    rounds, values = np.array(points, float).reshape(-1, 2).T
    return rounds, values


def dataset_in_words(name: str) -> str:
  """Return the name of a data set as papers write it, without a digest."""
  name = name.rpartition(' (')[0] or name
  return DATASETS.get(name, name)


def open_run(path: Path) -> Run:
  """Return a run, or a later evaluation in one; unfinished it has no result."""
  result = run_dir.load_result(path) if run_dir.is_finished(path) else {}
  stored = functools.cache(lambda: run_dir.load_clients(path))
  return Run(path, run_dir.load_config(path), result, stored)


def read(workdir: AnyPath) -> Run:
  """Return a finished run; refuse any other directory."""
  path = Path(workdir)
  run = open_run(path)
  result_file.existing(path, result_file.RESULT)
  if {*run.clients.scores} != {*run.result['views']}:
    raise bad_input(
      'run',
      got=f'{path}, whose result.json has the views {[*run.result["views"]]}',
      expected=f'those of its clients.npz, {[*run.clients.scores]}',
    )
  return run


def extremes(workdir: AnyPath) -> str:
  """Return a line of clients by name, and one of unseen ones; '' without."""
  run = read(workdir)
  view, lines = run.compared[1], []
  for who, clients in (('', run.clients), ('unseen, ', run.clients.unseen)):
    if clients is not None and clients.names is not None:
      numbers = accuracies(clients.scores[view], clients.counted)
      if text := _by_name(clients.labels, numbers, run.measure):
        lines.append(f'{who}{view}: {text}')
  return '\n'.join(lines)


def _by_name(names: Sequence[str], numbers: np.ndarray, of: Measure) -> str:
  """Return the numbers of few clients, or of those who do worst and best."""
  if np.isnan(numbers).all():
    return ''
  said = lambda client: f'{of.text(numbers[client])} {of.unit}'.strip()
  if len(names) <= MOST_NAMED:
    return ', '.join(f'{name} {said(at)}' for at, name in enumerate(names))
  low, high = np.nanargmin(of.sign * numbers), np.nanargmax(of.sign * numbers)
  return (
    f'lowest {names[low]} ({said(low)}), highest {names[high]} ({said(high)})'
  )


def read_group(paths: Sequence[AnyPath]) -> list[Run]:
  """Return the finished runs of a setting; [] if a seed of it diverged."""
  return [] if any(map(sentence_of, paths)) else [*map(read, paths)]


def settings_in(record: Mapping[str, Any]) -> Settings:
  """Return the settings in config.json, hyperparameters in order of names."""
  hp = sorted((record['config'].get('hp') or {}).items())
  return parse_config({**record['config'], 'hp': dict(hp)})


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
  """Return a config with the fields that were added after its run, too."""
  later = json.loads(json.dumps(defaults()))  # as those of config.json
  whole = dict(config)
  for name, value in later.items():
    given = config.get(name, value)
    whole[name] = {**value, **given} if isinstance(given, Mapping) else given
  return whole


def read_comparable(workdirs: Sequence[AnyPath]) -> list[Run]:
  """Return finished runs, each once, that may share an axis.

  A run without hp.mu differs from one with it in this field, and not in `hp`:
  it has a word for what only other runs of its method give.
  """
  runs = [read(path) for path in each_once(workdirs)]
  datasets = {str(run.path): run.dataset for run in runs}
  if len({*datasets.values()}) != 1:
    choices = dict.fromkeys(datasets.values())
    expected = 'one or more runs on one dataset'
    raise bad_input('runs', got=datasets, expected=expected, choices=choices)
  given = collections.defaultdict(dict)
  for run in runs:
    given[run.method] |= dict.fromkeys(run.config.get('hp', {}), DEFAULT)
  runs = [dataclasses.replace(run, others=given[run.method]) for run in runs]
  return on_shared_clients(runs)


def on_shared_clients(runs: Sequence[Run]) -> list[Run]:
  """Return runs of one partition, less the clients that one of them has not.

  `unseen_clients` leaves drawn ones out, so that others would be compared.
  """
  sets = collections.defaultdict(list)
  for run in runs:
    data = {name: run.config.get(name) for name in sorted(DIVISION)}
    sets[run.seed, run.data.partition('-')[0], repr(data)].append(run)
  shared = {}
  for alike in sets.values():
    if len({run.data for run in alike}) > 1:
      first, *rest = [run.in_partition(run.clients) for run in alike]
      everywhere = {*first}.intersection(*rest)
      known = [client for client in first if client in everywhere]
      shared |= {run.path: known for run in alike}
      if not known:
        raise bad_input(
          'runs',
          got=', '.join(str(run.path) for run in alike),
          expected='runs of which some client took part in each',
          cause='each leaves other clients out by unseen_clients',
        )
  return [dataclasses.replace(run, shared=shared.get(run.path)) for run in runs]


def are_same_clients(config: Mapping[str, Any]) -> bool:
  """Return whether client k of these settings is the same with every seed."""
  # Which clients come later, or share a domain, is drawn; but those by name.
  later, each = config.get('unseen_clients'), config.get('clients_per_domain')
  is_drawn = (later and is_number(later)) or (each or 1) > 1
  return config.get('partition') in SAME_CLIENTS and not is_drawn


def each_once(workdirs: Sequence[AnyPath]) -> list[Path]:
  """Return the directories without those that were given before."""
  paths: dict[str, Path] = {}
  for path in workdirs:
    paths.setdefault(os.path.realpath(path), Path(path))
  return list(paths.values())


# ---- which views are before and after personalisation


def first_and_after(
  known: Sequence[str], result: Result
) -> tuple[str | None, str]:
  """Return which of the views are before and after personalisation.

  Before is 'initial', in whichever place the config has it; None without it, or
  where it is the view after. After is what the run compared on validation,
  where it keeps examples for that. Else, of a family of views such as the
  mixtures of SuPerFed, it is the best on the tests; else 'finetuned', or the
  last.
  """
  after = chosen_by_tests(known, result) or main_view(known)
  if 'select' in result:
    after = result[result['select']]['view']
  return INITIAL if INITIAL in known and after != INITIAL else None, after


def chosen_by_tests(known: Sequence[str], result: Result) -> str | None:
  """Return the best view on the tests, where the last is one of a family.

  Not of several lengths of fine-tuning: the last is the one that was asked for.
  Nor where a run keeps validation examples: its view is known without tests.
  """
  if 'select' in result:
    return None
  last = main_view(known)
  for family, best in result.get('test_best_view', {}).items():
    is_asked = family == FINETUNED or family in known
    if best and not is_asked and last.startswith(f'{family}_'):
      return best['together']['view']
  return None


def notes_on_batches(
  results_by_label: Mapping[str, Sequence[Result]],
) -> list[str]:
  """Return a sentence on those that test with statistics of a batch."""
  labels = [
    label
    for label, results in results_by_label.items()
    if any(result.get('batch_statistics') for result in results)
  ]
  sentence = (
    'BatchNorm has the statistics of the images that are tested together; '
    'alone an image may get another class, but not with '
    f'norm_statistics=running: {", ".join(labels)}.'
  )
  return [sentence] * bool(labels)
