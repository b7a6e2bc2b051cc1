"""The cells of the board of attacks, and the counts of their clients."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from configs import digits
from configs.leaderboard import FORMS, PROTOCOL, second_budgets
from fedjax_pfl.analysis import open_run
from fedjax_pfl.compare.form import LAST_ROUND
from fedjax_pfl.compare.plan import with_seeds
from fedjax_pfl.compare.train import train_groups
from fedjax_pfl.core import atomic_files
from fedjax_pfl.results.runs.run import Run
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training.finalize import with_success
from fedjax_pfl.training.program import Evaluator
from fedjax_pfl.training.state import random_streams

METHODS = 'fedavg', 'fedbabu', 'fedrep', 'ditto'
BACKDOOR = 'backdoor'
CLEAN = 'none', 'uniform'
ALONE = 'local_only'  # no attack reaches it but that on its own examples
ATTACKS = 'none', 'sign_flip', 'alie', 'label_flip', 'backdoor'
RULES = {
  'uniform': {},
  'trimmed_mean': {},
  'geometric_median': {},
  'multi_krum': {'aggregation_before': ('mixing',)},
  'centred_clipping': {},
}
LIARS = {'attackers': 0.2, 'aggregation_bears': 0.2, 'client_fraction': 1.0}
# One core: each of several devices would have a share of a cohort.
ONCE = LAST_ROUND | {'save_clients': (), 'devices': 1}
# Of a form of the leaderboard its partition, and what is trained of it.
PARTITIONS = {'lite': 'CIFAR-10 Dir(0.1)', 'cifar10': 's=5'}
GRIDS = {
  'cifar10': (
    ('fedavg', 'fedbabu', 'ditto'),
    ('none', 'sign_flip', 'backdoor'),
    ('uniform', 'trimmed_mean', 'centred_clipping'),
  )
}
# Of all clients: as many updates as in 50 rounds of a fifth of them.
ROUNDS = {'cifar10': {'rounds': 10}}
VIEWS = {'before': ('initial',), 'after': ('finetuned', 'personal')}
OUT = 'share', 'precision', 'recall'
COLUMNS = (
  *('method', 'attack', 'rule', 'seed', 'attackers', 'before', 'after'),
  *('tests', 'others', 'classes', 'success_before', 'success_after', *OUT),
)


class Cell(NamedTuple):
  """A method under an attack, with a rule of the server."""

  settings: Settings
  method: str
  attack: str = 'none'
  rule: str = 'uniform'

  @property
  def words(self) -> str:
    return ', '.join(self[1:])


def cells(form: str) -> list[Cell]:
  """Return all cells of a form: local training alone once."""
  board = [_cell(form, ALONE, {})]
  grid = GRIDS.get(form, (METHODS, ATTACKS, RULES))
  for method, attack, rule in itertools.product(*grid):
    fields = {**LIARS, **RULES[rule], 'attack': attack, 'aggregation': rule}
    cell = _cell(form, method, fields)
    board.append(cell._replace(attack=attack, rule=rule))
  return board


def _cell(form: str, method: str, fields: Mapping[str, Any]) -> Cell:
  base = digits.get_config(method).to_dict()
  if form != 'digits':
    frozen = FORMS[form]
    of_method = {name: base[name] for name in ('algorithm', 'hp', 'views')}
    base = of_method | PROTOCOL | frozen['base'] | ROUNDS.get(form, {})
    base |= frozen['partitions'][PARTITIONS[form]]
    base |= LIARS | {'learning_rate': 0.01, 'validation_fraction': 0.0}
    base['finetune'] = base['finetune'] | {'learning_rate': 0.01}
    base['finetune']['epochs'] = (5,)
    base |= second_budgets(base, frozen['examples']).get(method, {})
  return Cell(parse_config(base | ONCE | fields), method)


def train(
  cell: Cell, seeds: Sequence[int], folder: str, log: Callable
) -> list[dict[str, Any]]:
  """Return a row for each seed; none of a cell that diverged with one."""
  (runs,) = train_groups(with_seeds(cell.settings, {}, seeds), folder, log)
  return [_row(cell, run) for run in runs]


def opened(run: Run) -> dict[str, np.ndarray]:
  """Return how many tests of each client a trigger moves to the target: [K].

  By view. Of a run that nobody attacks, as of one from before clients.npz had
  it, by its last models.
  """
  scores, views = run.clients.scores, [*run.clients.scores]
  if BACKDOOR not in (scores[views[0]].own or {}):
    quiet = lambda line: None
    settings, data = open_run.read_run(run.path, quiet)
    experiment = open_run.rebuild(settings, data, quiet)
    states = open_run.load_states(experiment, run.path, quiet)
    evaluator = Evaluator(experiment, random_streams(run.seed)['evaluation'])
    attack = settings.attack._replace(name=BACKDOOR)
    experiment = experiment.with_settings(settings._replace(attack=attack))
    scores = with_success(experiment, evaluator, states, scores)
  others = of_others(run)
  return {
    view: np.rint(np.nan_to_num(scores[view].own[BACKDOOR]) * others / 100)
    for view in views
  }


def of_others(run: Run) -> np.ndarray:
  """Return how many tests of each client are not of the target: [K]."""
  classes = run.clients.test_classes
  return classes.sum(1) - classes[:, run.settings.attack.target]


def _row(cell: Cell, run: Run) -> dict[str, Any]:
  """Return a row: whole numbers of every client, and what is of all."""
  told, clients = run.result.get('lies', {}), run.clients
  row = {name: getattr(cell, name) for name in COLUMNS[:3]}
  row |= {'seed': run.seed, 'attackers': _words(told.get('attackers', ()))}
  has_trigger = cell.attack == BACKDOOR or cell[2:] == CLEAN
  hits = opened(run) if has_trigger and cell.method != ALONE else {}
  for kind, views in VIEWS.items():
    for view in {*views} & {*clients.scores}:
      row[kind] = _words(clients.scores[view].correct)
      if hits:
        row[f'success_{kind}'] = _words(hits[view])
  for name in OUT:
    share = told.get('left_out', {}).get(f'left_out/{name}')
    row[name] = '' if share is None or np.isnan(share) else f'{share:.4f}'
  if cell.method == ALONE:  # the same in all rows of a seed
    row['tests'] = _words(clients.scores['personal'].count)
    row['others'] = _words(of_others(run))
    row['classes'] = ' | '.join(map(_words, clients.train_classes))
  return row


def _words(numbers: Iterable[float]) -> str:
  return ' '.join(f'{number:.0f}' for number in numbers)


def write(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
  """Write the counts; the folder is made."""
  path.parent.mkdir(parents=True, exist_ok=True)
  full = [dict.fromkeys(COLUMNS, '') | row for row in rows]
  atomic_files.write_csv(path, COLUMNS, full)
