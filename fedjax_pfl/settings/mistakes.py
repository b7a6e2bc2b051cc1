"""Settings that are right each, but not beside one another."""

from collections.abc import Mapping, Sequence
from math import comb
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.algorithms import own_defaults
from fedjax_pfl.around.aggregation import MEANS, OF_F, TRUSTED
from fedjax_pfl.around.fair import STRENGTH
from fedjax_pfl.core.errors import BadInput, bad_input, refuse
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.data.partition import OF_OWN
from fedjax_pfl.federated.sampling import TURNS
from fedjax_pfl.settings.schema import FIELDS, Settings

MAX_ROUNDS = 1_000_000  # the numbers of each are kept in memory
MAX_SUBSETS = 100_000  # that mda looks at in every round
HIDDEN = 'noise in the sum of changes does not hide'
KEPT = 'the server would train on examples that are kept for'
OF_ONE = 'that is of one model'
# What goes with neither an attack nor a rule other than a mean.
NO_LIES = (
  ('sampling=poisson', 'nobody knows how many of a round lie'),
  ('sampling=cyclic', 'nobody knows how many of a round lie'),
  ('dp.clip', 'its noise hides a client in a sum, and in no single upload'),
  ('buffer_size', 'late changes are scaled'),
  ('models', 'changes of different models have no mean'),
)
# What goes with no fair rule.
OF_LOSSES = (
  ('compression', 'losses are sent'),
  ('attack', 'losses may be lies'),
)
# A field that may not be on beside another, and why. On is what is not the
# default, or has the value that is named.
BESIDE = (
  ('lora_rank', 'frozen_features', 'adapters change the features'),
  ('clients_placement', 'debug', 'its loop runs on the device alone'),
  ('model_devices', 'debug', 'its loop runs on one device'),
  ('model_devices', 'clients_placement', 'one device has a cohort'),
  (
    *('validation_fraction', 'clients_placement=disk'),
    'the states of all clients in the best round are kept in memory',
  ),
  ('buffer_size', 'deadline', 'a server with a buffer waits for nobody'),
  ('buffer_size', 'sampling', 'a server with a buffer has no cohorts'),
  (
    *('compression', 'buffer_size'),
    'the server scales late changes as models, which packed bits are not',
  ),
  (
    *('dp.clip_quantile', 'deadline'),
    'nobody knows how many are late, of whom no norm is counted',
  ),
  ('dp.clip', 'aggregation=examples', f'{HIDDEN} n_i / n'),
  ('dp.clip', 'norm_statistics=running', f'{HIDDEN} a mean variance'),
  ('dp.clip', 'server_data_fraction', f'{HIDDEN} what a server trains on'),
  ('dp.clip', 'buffer_size', f'{HIDDEN} who comes first to a buffer'),
  *(
    ('server_data_fraction', f'test_partition={name}', f'{KEPT} testing')
    for name in OF_OWN
  ),
  ('server_data_fraction', 'validation_fraction', f'{KEPT} choosing'),
  ('server_data_fraction', 'unseen_clients', f'{KEPT} clients who come later'),
  *(('attack', other, why) for other, why in NO_LIES),
  ('attackers', 'attacker_ids', 'who attacks is drawn, or named'),
  ('models', 'model_devices', OF_ONE),
  ('models', 'init_from', OF_ONE),
  ('models', 'dp.clip', OF_ONE),
  ('models', 'server_data_fraction', OF_ONE),
  ('models', 'norm_statistics=running_local', OF_ONE),
  ('models', 'frozen_features', OF_ONE),
)
# Methods whose rounds are one fit of as many steps as `local_steps` says.
WITH_STEPS = ('centralized', 'fedavg', 'feddyn', 'fednova', 'fedopt', 'fedprox')
WITH_STEPS += ('local_only', 'scaffold')
# A field that is on, what it needs, and why.
NEEDS = (
  ('deadline', 'client_speeds=lognormal', 'no time passes'),
  ('buffer_size', 'client_speeds=lognormal', 'no time passes'),
  ('select=validation', 'validation_fraction=0.1', 'nothing is kept for it'),
  (
    *('norm_statistics=frozen', 'init_from=FILE.safetensors'),
    'statistics that were never averaged normalise nothing',
  ),
  *(
    (f'dp.{name}', 'dp.clip=1', 'what is not clipped has no noise')
    for name in (
      'clip_quantile',
      'noise_multiplier',
      'epsilon',
      'delta',
      'bands',
    )
  ),
  ('dp.clip', 'dp.delta=1e-5', 'a budget is one at a delta'),
)


def check_together(settings: Settings, flat: Mapping[str, Any]) -> None:
  """Refuse settings that contradict one another; `flat` has them by name."""
  for side, other, why in BESIDE:
    if _is_on(flat, side) and _is_on(flat, other):
      raise _conflict(flat, side, f'with {other}: {why}', _off(other))
  for side, needed, why in NEEDS:
    name = needed.partition('=')[0]
    if _is_on(flat, side) and not _is_on(flat, name):
      raise _conflict(flat, side, f'without {name}: {why}', needed)
  rule = flat['aggregation']
  others = (*NO_LIES, *OF_LOSSES * (rule in STRENGTH)) * (rule not in MEANS)
  for other, why in others:
    if _is_on(flat, other):
      where = f'with {other}: {why}'
      raise _conflict(flat, 'aggregation', where, _off(other))
  rows = *_of_numbers(settings), *_of_lies(settings)
  refuse(*((wrong, name, flat[name], *more) for wrong, name, *more in rows))


def _is_on(flat: Mapping[str, Any], side: str) -> bool:
  name, _, value = side.partition('=')
  given = flat[name]
  return str(given) == value if value else given != FIELDS[name].default


def _off(side: str) -> str:
  """Return the field with its default: 'dp.clip=0.0', 'no init_from'."""
  name = side.partition('=')[0]
  default = FIELDS[name].default
  return f'no {name}' if default in ('', (), None) else f'{name}={default}'


def _conflict(flat, side: str, where: str, instead: str) -> BadInput:
  name = side.partition('=')[0]
  return bad_input(
    name,
    got=flat[name],
    expected=f'{_off(side).removeprefix(f"{name}=")} {where}',
    choices=[instead, _off(side)],
  )


def _of_numbers(settings: Settings) -> list[tuple]:
  """Return whether a number is wrong, its field, what is expected, choices."""
  data, dp, training = settings.data, settings.dp, settings.training
  model, method, system = settings.model, settings.algorithm, settings.system
  clients, rounds = data.num_seen_clients, settings.num_rounds
  saved, bands = settings.evaluation.save_clients, dp.bands
  is_cyclic, rate = training.sampling == TURNS, training.client_fraction
  trains_all = method != 'partial' and not is_code(method)
  is_frozen = model.norm_statistics == 'frozen' and not model.frozen_features
  noises = 'dp.epsilon=8', 'dp.noise_multiplier=1'
  return [
    (
      training.rounds is None and rounds < 1,
      'local_epochs',
      f'at most total_epochs, {training.total_epochs}: rounds are total_epochs '
      '/ local_epochs',
    ),
    (
      training.rounds == 0 and not settings.init_from,
      'rounds',
      FIELDS['rounds'].rule.expected,
      'rounds=0 with init_from=RUN, to evaluate the model of that run',
    ),
    (
      rounds > MAX_ROUNDS,
      'rounds' if training.rounds else 'total_epochs',
      f'at most {MAX_ROUNDS} rounds',
    ),
    (
      settings.train.steps and not (method in WITH_STEPS or is_code(method)),
      'local_steps',
      f'0 with {method}, whose rounds are epochs',
      *('local_epochs', *WITH_STEPS),
    ),
    (
      not settings.evaluation.views,
      'views',
      'at least one view, to be evaluated at the end; those during the rounds '
      'are eval_views',
      *('initial', 'finetuned'),
    ),
    (
      clients < 1,
      'unseen_clients',
      f'less than num_clients, {data.num_clients}, which counts all: a cohort '
      'has at least one client',
    ),
    (
      isinstance(data.unseen_clients, tuple) and data.partition != 'natural',
      'unseen_clients',
      'a number, or names with partition=natural: clients that are drawn have '
      'none',
    ),
    (
      any(client >= clients for client in saved),
      'save_clients',
      f'ids of clients that take part in rounds, 0 to {clients - 1}',
    ),
    (
      settings.speeds.buffer_size > clients,
      'buffer_size',
      f'at most the {clients} clients: none is twice in a buffer',
    ),
    (
      model.lora_rank and trains_all,
      'lora_rank',
      f'0 with {method}, which trains and sends all kernels beside the '
      'adapters; the patterns of partial say what is frozen',
      *('algorithm=partial', "hp.shared='*/lora_*'"),
    ),
    (
      settings.architectures.models
      and system.clients_per_chunk not in ('auto', 1),
      'clients_per_chunk',
      'auto or 1 with several models, of which each client runs its own',
    ),
    (
      dp and dp.noise_multiplier and dp.epsilon,
      'dp.epsilon',
      '0 with dp.noise_multiplier',
      *noises,
    ),
    (
      dp and not (dp.noise_multiplier or dp.epsilon),
      'dp.epsilon',
      'a budget, or a noise',
      *noises,
    ),
    (
      dp and saved and saved != FIELDS['save_clients'].default,
      'save_clients',
      '() with dp.clip: a personalised model holds the data of its client',
    ),
    (
      dp and is_frozen,
      'norm_statistics',
      f'another one with dp.clip: {HIDDEN} that it changes frozen statistics',
      *('frozen_features=True', 'dp.clip=0'),
    ),
    (
      is_cyclic != (bands > 1),
      'dp.bands',
      'above 1 with sampling=cyclic and 1 without: a client may take part in '
      'one of so many rounds',
    ),
    (
      is_cyclic and (bands > rounds or clients % bands or rate * bands > 1),
      'dp.bands',
      f'a divisor of {clients}, the clients, at most {rounds}, the rounds, and '
      f'{1 / rate:g}, 1 / client_fraction: groups of equal size take turns',
    ),
  ]


def _of_lies(settings: Settings) -> list[tuple]:
  """Return the same of attackers, and of how many a rule bears."""
  attack, clients = settings.attack, settings.data.num_seen_clients
  aggregation = settings.aggregation._replace(
    attack=attack, num_clients=clients
  )
  rule, size = aggregation.rule, settings.num_drawn
  liars = aggregation.liars(size)
  changes = -(-size // 2) if 'bucketing' in aggregation.before else size
  needing, subsets = OF_F & {rule, *aggregation.before}, comb(changes, liars)
  return [
    (
      attack and not attack.number(clients),
      'attackers',
      'above 0 with an attack, or attacker_ids',
      *('attackers=0.2', 'attacker_ids=(0,)'),
    ),
    (
      any(not 0 <= client < clients for client in attack.attacker_ids),
      'attacker_ids',
      f'ids of clients that take part in rounds, 0 to {clients - 1}',
    ),
    (
      attack.name.startswith('best_') and not aggregation.is_robust,
      'attack',
      f'{attack.name} against a robust aggregation: of a mean no strength is '
      'the best',
      *('attack=alie', 'attack=ipm', 'aggregation=trimmed_mean'),
    ),
    (
      needing and not liars,
      'aggregation_bears',
      f'above 0 with {min(needing, default="")}: what bears nobody is a mean',
      *('aggregation_bears=0.2', 'aggregation=median'),
    ),
    (
      aggregation.is_robust and 2 * liars + 1 > changes,
      'aggregation_bears' if aggregation.bears else 'attackers',
      f'at most {(changes - 1) // 2} liars among {changes} changes of a round, '
      f'not {liars}: a rule bears less than a half',
      *('fewer attackers', 'a larger client_fraction'),
    ),
    (
      rule == 'monna' and (size < clients or TRUSTED in attack.attacker_ids),
      'aggregation',
      f'another rule, or client_fraction=1 and client {TRUSTED}, whom it '
      'trusts, not among the attackers',
      *('aggregation=multi_krum', 'client_fraction=1'),
    ),
    (
      rule == 'mda' and subsets > MAX_SUBSETS,
      'aggregation',
      f'another rule, or fewer clients: mda looks at {subsets:,} choices of '
      f'{changes - liars} among {changes}, more than {MAX_SUBSETS:,}',
      *('aggregation=multi_krum', 'a smaller client_fraction'),
    ),
  ]


# ---- fields that do nothing alone --------------------------------------------


def check_parts(flats: Sequence[Mapping[str, Any]]) -> None:
  """Refuse a field that does nothing in any of these flat configs.

  Of what is typed: a finished run that has one can be read all the same. A
  method declares such hyperparameters as PARTS, each with another one and the
  values of it with which the first does something.
  """
  for name, field in FIELDS.items():
    if field.needs is None:
      continue
    main, value = field.needs
    off, needed = FIELDS[main].default, f'{main}={value}'
    values = [flat[main] for flat in flats]
    is_on = any(x == value if field.only else x != off for x in values)
    given = [flat[name] for flat in flats]
    if not is_on and any(x != field.default for x in given):
      raise _idle(name, field.default, given, needed, field.only)
  for method in dict.fromkeys(flat['algorithm'] for flat in flats):
    defaults = own_defaults(method)
    hps = [
      defaults | flat['hp'] for flat in flats if flat['algorithm'] == method
    ]
    parts = getattr(algorithms.load(method), 'PARTS', {})
    for name, (main, *values) in parts.items():
      given, needed = [hp[name] for hp in hps], f'hp.{main}={values[0]}'
      is_on = any(hp[main] in values for hp in hps)
      if not is_on and any(x != defaults[name] for x in given):
        raise _idle(f'hp.{name}', defaults[name], given, needed)


def _idle(
  name: str, default: Any, given: list, needed: str, only: bool = True
) -> BadInput:
  """Return the refusal of a value that nothing reads."""
  without = needed if only else needed.partition('=')[0]
  return bad_input(
    name,
    got=next(value for value in given if value != default),
    expected=f'{default} without {without}: alone it does nothing',
    choices=[needed, f'{name}={default}'],
  )
