"""Every setting of a config, checked one by one before anything is done."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedjax_pfl import algorithm
from fedjax_pfl.data import NAMES, PARTITIONS
from fedjax_pfl.errors import bad_input
from fedjax_pfl.local import AGGREGATIONS
from fedjax_pfl.models.lowering import LOWERINGS
from fedjax_pfl.models.task import MODELS
from fedjax_pfl.personalize import PARTS

TYPO = 'a typing error'


class Rule(NamedTuple):
  """What a field has to be."""

  holds: Callable[[Any], bool]
  expected: str
  cause: str = TYPO
  choices: tuple[str, ...] | None = None


def one_of(choices, expected: str) -> Rule:
  names = tuple(choices)
  return Rule(lambda value: value in names, expected, TYPO, names)


def at_least(least: int, what: str) -> Rule:
  return Rule(
    lambda value: _is_int(value) and value >= least,
    f'a whole number of {what}, {least} or more',
  )


def number(low: float, high: float, what: str, cause: str = TYPO) -> Rule:
  """A number in (low, high]."""
  return Rule(
    lambda value: _is_number(value) and low < value <= high, what, cause
  )


def several(inner: Rule, what: str) -> Rule:
  return Rule(
    lambda value: (
      isinstance(value, tuple | list) and all(inner.holds(v) for v in value)
    ),
    what,
    'a single number: write "(5,)"',
  )


RATE = number(
  0, float('inf'), 'a learning rate above 0', 'a sign, or a missing digit'
)
MOMENTUM = Rule(
  lambda value: _is_number(value) and 0 <= value < 1,
  'a momentum from 0 to below 1',
)
EPOCHS = Rule(
  lambda value: (
    isinstance(value, tuple | list)
    and len(value) > 0
    and all(_is_int(v) and v >= 1 for v in value)
  ),
  'whole numbers of epochs, 1 or more',
  'epoch 0 is the view "initial"; a single number is written "(5,)"',
)

RULES: dict[str, Rule] = {
  'algorithm': one_of(
    algorithm.available(), 'the name of a file in fedjax_pfl/algorithms'
  ),
  'seed': at_least(0, 'a seed'),
  'dataset': one_of(NAMES, 'a known image set'),
  'examples': at_least(0, 'training images (0 = all)'),
  'model': one_of(MODELS, 'a known model'),
  'lowering': one_of(LOWERINGS, 'a way to compute convolutions'),
  'partition': one_of(PARTITIONS, 'a way to deal examples to clients'),
  'clients': at_least(1, 'clients'),
  'shards': at_least(1, 'shards'),
  'fraction': number(
    0,
    1,
    'a fraction above 0 and up to 1',
    'a percentage, or a number of clients',
  ),
  'total_epochs': at_least(1, 'epochs'),
  'local_epochs': at_least(1, 'epochs'),
  'rounds': Rule(
    lambda value: value is None or (_is_int(value) and value >= 1),
    'a whole number of rounds, 1 or more',
  ),
  'batch_size': at_least(1, 'examples'),
  'learning_rate': RATE,
  'lr_drops': Rule(
    lambda value: (
      isinstance(value, tuple | list)
      and all(_is_number(v) and 0 < v < 1 for v in value)
    ),
    'fractions of all rounds, between 0 and 1',
    'rounds instead of fractions',
  ),
  'momentum': MOMENTUM,
  'weight_decay': Rule(
    lambda value: _is_number(value) and value >= 0, 'a number, 0 or more'
  ),
  'aggregation': one_of(AGGREGATIONS, 'a way to weigh clients'),
  'finetune.epochs': EPOCHS,
  'finetune.part': one_of(PARTS, 'a part of the model'),
  'finetune.learning_rate': RATE,
  'finetune.momentum': MOMENTUM,
  'finetune.batch_size': at_least(1, 'examples'),
  'eval_every': at_least(0, 'rounds (0 = sixteen times in a run)'),
  'checkpoint_every': at_least(0, 'rounds (0 = with every evaluation)'),
  'log_every': at_least(0, 'rounds (0 = automatic)'),
  'chunk': Rule(
    lambda value: value == 'auto' or (str(value).isdigit() and int(value) >= 1),
    '"auto" or a whole number of clients, 1 or more',
  ),
}


def check_settings(settings: Mapping[str, Any]) -> None:
  """Refuse the first setting that breaks its rule."""
  for name, rule in RULES.items():
    value = _lookup(settings, name)
    if not rule.holds(value):
      raise bad_input(
        name,
        got=value,
        expected=rule.expected,
        choices=rule.choices,
        cause=rule.cause,
      )
  if num_rounds(settings) < 1:
    raise bad_input(
      'local_epochs',
      got=settings['local_epochs'],
      expected=f'at most total_epochs, {settings["total_epochs"]}',
      cause='rounds = total_epochs / local_epochs, and that is below 1',
    )
  for client in settings['save_clients']:
    if not (_is_int(client) and 0 <= client < settings['clients']):
      raise bad_input(
        'save_clients',
        got=client,
        expected=f'ids of clients, 0 to {settings["clients"] - 1}',
        cause='fewer clients than before',
      )


def num_rounds(settings: Mapping[str, Any]) -> int:
  """Return the rounds: as given, or floor(total_epochs / local_epochs)."""
  if settings['rounds'] is not None:
    return settings['rounds']
  return settings['total_epochs'] // settings['local_epochs']


def _lookup(settings, name):
  for key in name.split('.'):
    settings = settings[key]
  return settings


def _is_int(value):
  return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value):
  return isinstance(value, int | float) and not isinstance(value, bool)
