"""Every setting of a config, checked one by one before anything is done."""

import math
from collections.abc import Mapping
from typing import Any

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.settings.schema import MOST_SEED, RULES

MOST_WHOLE = 2**31 - 1  # whole numbers on a device have 32 bits
MOST_REAL = 3.4e38  # floats as well
# What keeps the loss of every step, or the numbers of every round, in memory.
MOST_EPOCHS = 100_000
MOST_ROUNDS = 1_000_000
GROUPS = {name.split('.')[0] for name in RULES if '.' in name}


def check_settings(settings: Mapping[str, Any]) -> None:
  """Refuse the first setting that is unknown, absent, or breaks its rule."""
  if not isinstance(settings, Mapping):
    raise bad_input(
      'config',
      got=settings,
      expected='a dict of settings',
      cause='a ConfigDict without .to_dict(), or the path of a config',
    )
  flat = _flatten(settings)
  _check_names(flat)
  for name, rule in RULES.items():
    check_size(name, flat[name], MOST_SEED if name == 'seed' else MOST_WHOLE)
    if not rule.holds(flat[name]):
      choices = rule.choices
      raise bad_input(
        name,
        got=flat[name],
        expected=rule.expected,
        choices=choices() if callable(choices) else choices,
        cause=rule.cause,
      )
  _check_together(settings)


def check_size(name: str, value: Any, most: int = MOST_WHOLE) -> None:
  """Refuse numbers that 32 bits do not hold, also inside a list."""
  for one in value if isinstance(value, tuple | list) else (value,):
    is_whole = isinstance(one, int) and abs(one) > most
    is_real = isinstance(one, float) and MOST_REAL < abs(one) < math.inf
    if is_whole or is_real:
      raise bad_input(
        name,
        got=value,
        expected=f'whole numbers up to {most}, others up to {MOST_REAL}: '
        'what 32 bits hold',
        cause='a digit too many',
      )


def num_rounds(settings: Mapping[str, Any]) -> int:
  """Return the rounds: as given, or floor(total_epochs / local_epochs)."""
  if settings['rounds'] is not None:
    return settings['rounds']
  return settings['total_epochs'] // settings['local_epochs']


def _flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Return {'finetune.trainable': ..} for {'finetune': {'trainable': ..}}."""
  flat = {}
  for name, value in settings.items():
    if name in GROUPS and isinstance(value, Mapping):
      flat |= {f'{name}.{field}': inner for field, inner in value.items()}
    else:
      flat[name] = value
  return flat


def _check_names(flat: Mapping[str, Any]) -> None:
  fields = [*RULES, 'hp']
  for name in flat:
    if name not in fields:
      group = str(name).split('.')[0]
      inside = [field for field in fields if field.startswith(f'{group}.')]
      raise bad_input(
        'config',
        got=name,
        expected='a field of a config',
        choices=inside or fields,
        cause='a typing error, or a hyperparameter of a method: hp.<name>',
      )
  absent = [name for name in fields if name not in flat]
  if absent:
    raise bad_input(
      'config',
      got=f'no {absent[0]}',
      expected='every field of a config',
      choices=fields,
      cause='a dict that was not made by configs.common.base',
    )
  if not isinstance(flat['hp'], Mapping):
    raise bad_input(
      'hp',
      got=flat['hp'],
      expected='hyperparameters by name, {} for the defaults of the method',
      cause='one value: write hp.<name>',
    )


def _check_together(settings: Mapping[str, Any]) -> None:
  """Refuse fields that are right each, but not beside one another."""
  if settings['rounds'] == 0 and not settings['init_from']:
    raise bad_input(
      'rounds',
      got=0,
      expected=RULES['rounds'].expected,
      choices=[
        'rounds=0 with init_from=RUN, to evaluate the model of that run'
      ],
      cause='a fresh model was to be evaluated, or init_from was forgotten',
    )
  if settings['rounds'] is None and num_rounds(settings) < 1:
    raise bad_input(
      'local_epochs',
      got=settings['local_epochs'],
      expected=f'at most total_epochs, {settings["total_epochs"]}',
      cause='rounds = total_epochs / local_epochs, and that is below 1',
    )
  _check_lengths(settings)
  if not settings['views']:
    raise bad_input(
      'views',
      got=settings['views'],
      expected='at least one view, to be evaluated at the end',
      choices=['initial', 'finetuned'],
      cause='eval_views was meant: the views during the rounds',
    )
  _check_server_share(settings)
  _check_placement(settings)
  for client in settings['save_clients']:
    if client >= settings['num_clients']:
      raise bad_input(
        'save_clients',
        got=client,
        expected=f'ids of clients, 0 to {settings["num_clients"] - 1}',
        cause='fewer clients than before',
      )


def _check_lengths(settings: Mapping[str, Any]) -> None:
  """Refuse what would run for ever, and keep all of it in memory."""
  lengths = {
    'rounds': (num_rounds(settings), MOST_ROUNDS),
    'local_epochs': (settings['local_epochs'], MOST_EPOCHS),
    'finetune.epochs': (max(settings['finetune']['epochs']), MOST_EPOCHS),
  }
  for name, (length, most) in lengths.items():
    if length > most:
      raise bad_input(
        name,
        got=length,
        expected=f'at most {most}',
        cause='a digit too many, or steps instead of epochs',
      )


def _check_server_share(settings: Mapping[str, Any]) -> None:
  """Keep the server from what clients are tested on."""
  if settings['test_partition'] == 'split' and settings['server_data_fraction']:
    raise bad_input(
      'server_data_fraction',
      got=settings['server_data_fraction'],
      expected='0 with test_partition=split: the server would train on images '
      'that clients are tested on',
      choices=['server_data_fraction=0', 'test_partition=same'],
      cause='two settings of different papers',
    )


def _check_placement(settings: Mapping[str, Any]) -> None:
  """Keep the clients of a Python loop where it looks for them."""
  if settings['debug'] and settings['clients_placement'] == 'host':
    raise bad_input(
      'clients_placement',
      got='host',
      expected='device with debug=True: its loop runs on the device alone',
      choices=['clients_placement=device', 'debug=False'],
      cause='a run on the host that is looked into: the numbers are the same '
      'on the device',
    )
