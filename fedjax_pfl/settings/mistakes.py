"""Settings that are right each, but not beside one another."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.data.partition import OF_OWN
from fedjax_pfl.federated.sampling import DEFAULT, TURNS
from fedjax_pfl.settings.hyperparameters import own_defaults
from fedjax_pfl.settings.schema import FIELDS, Settings

# The loss of every step, and the numbers of every round, are kept in memory.
MAX_EPOCHS = 100_000
MAX_ROUNDS = 1_000_000

# Fields that do nothing alone, each with a value of another with which they do.
PARTS = {
  'server_learning_rate': ('server_optimizer', 'sgd'),
  'server_momentum': ('server_optimizer', 'sgd'),
  'compression_levels': ('compression', 'qsgd'),
  'compression_share': ('compression', 'topk'),
  'speed_sigma': ('client_speeds', 'lognormal'),
  'late_clients': ('deadline', 20),
  'server_trainable': ('server_data_fraction', 0.05),
  'lora_alpha': ('lora_rank', 8),
  'lora_targets': ('lora_rank', 8),
  'test_shards_per_client': ('test_partition', 'independent'),
}
# No other value will do.
ONLY = 'compression', 'client_speeds', 'test_partition'

Refuse = Callable[..., None]  # `_refuse_if` with the fields


def check_parts(flats: Sequence[Mapping[str, Any]]) -> None:
  """Refuse a field that does nothing in any of these flat configs.

  Of what is typed: a finished run that has one can be read all the same. A
  method declares such hyperparameters as PARTS, each with another one and the
  values of it with which the first does something.
  """
  for name, (main, value) in PARTS.items():
    off, needed = FIELDS[main].default, f'{main}={value}'
    is_only = main in ONLY
    is_on = [
      flat[main] == value if is_only else flat[main] != off for flat in flats
    ]
    given = [flat[name] for flat in flats]
    without = needed if is_only else main
    _refuse_alone(name, FIELDS[name].default, given, is_on, needed, without)
  for method in dict.fromkeys(flat['algorithm'] for flat in flats):
    own = own_defaults(method)
    hps = [own | flat['hp'] for flat in flats if flat['algorithm'] == method]
    parts = getattr(algorithms.load(method), 'PARTS', {})
    for name, (main, *values) in parts.items():
      is_on = [hp[main] in values for hp in hps]
      given, needed = [hp[name] for hp in hps], f'hp.{main}={values[0]}'
      _refuse_alone(f'hp.{name}', own[name], given, is_on, needed, needed)


def _refuse_alone(
  name: str,
  default: Any,
  given: Sequence[Any],
  is_on: Sequence[bool],
  needed: str,
  without: str,
) -> None:
  """Refuse a value other than the default if nothing is on that reads it."""
  idle = [value for value in given if value != default]
  if idle and not any(is_on):
    raise bad_input(
      name,
      got=idle[0],
      expected=f'{default} without {without}: alone it does nothing',
      choices=[needed, f'{name}={default}'],
      cause='one of two settings was forgotten',
    )


def check_together(settings: Settings, flat: Mapping[str, Any]) -> None:
  """Refuse settings that contradict one another; `flat` has them by name."""
  refuse_if = partial(_refuse_if, flat)
  _check_rounds(settings, refuse_if)
  _check_evaluation(settings, refuse_if)
  _check_buffer(settings, refuse_if)
  _check_privacy(settings, refuse_if)
  _check_clients(settings, refuse_if)


def _refuse_if(
  flat: Mapping[str, Any],
  is_mistake: Any,
  name: str,
  expected: str,
  choices: tuple[str, ...] | None = None,
  cause: str = 'one of two settings was forgotten',
  got: Any = None,
) -> None:
  """Refuse the value of a field, or what was got, if it is a mistake."""
  if is_mistake:
    got = flat[name] if got is None else got
    raise bad_input(
      name, got=got, expected=expected, choices=choices, cause=cause
    )


def _check_rounds(settings: Settings, refuse_if: Refuse) -> None:
  training, rounds = settings.training, settings.training.num_rounds
  refuse_if(
    training.rounds is None and rounds < 1,
    'local_epochs',
    f'at most total_epochs, {training.total_epochs}',
    cause='rounds = total_epochs / local_epochs, and that is below 1',
  )
  for name, length, largest in (
    ('rounds', rounds, MAX_ROUNDS),
    ('local_epochs', training.local_epochs, MAX_EPOCHS),
    ('finetune.epochs', max(settings.finetune.epochs), MAX_EPOCHS),
  ):
    refuse_if(
      length > largest,
      name,
      f'at most {largest}',
      cause='a digit too many, or steps instead of epochs',
      got=length,
    )
  refuse_if(
    training.rounds == 0 and not settings.init_from,
    'rounds',
    FIELDS['rounds'].rule.expected,
    ('rounds=0 with init_from=RUN, to evaluate the model of that run',),
  )
  refuse_if(
    training.deadline and training.client_speeds == 'none',
    'deadline',
    '0 without client_speeds: no time passes',
    ('client_speeds=lognormal', 'client_speeds=FILE', 'deadline=0'),
  )
  method, rank = settings.algorithm, settings.model.lora_rank
  refuse_if(
    rank and method != 'partial' and not is_code(method),
    'lora_rank',
    'partial, whose patterns say what is frozen',
    ('algorithm=partial', "hp.shared='*/lora_*'"),
    'adapters in a method that trains and sends all kernels beside them',
    f'{rank} with {method}',
  )


def _check_buffer(settings: Settings, refuse_if: Refuse) -> None:
  training, clients = settings.training, settings.data.num_seen_clients
  in_rounds = training.deadline or training.sampling != DEFAULT
  refuse_if(
    training.buffer_size and (training.client_speeds == 'none' or in_rounds),
    'buffer_size',
    '0 without client_speeds, with a deadline, or with another sampling: a '
    'server with a buffer waits for nobody, and has no cohorts',
    ('client_speeds=lognormal', 'deadline=0', 'buffer_size=0'),
  )
  refuse_if(
    training.buffer_size and training.compression != 'none',
    'compression',
    'none with a buffer: the server scales late changes as models, which '
    'packed bits are not',
    ('compression=none', 'buffer_size=0'),
  )
  refuse_if(
    training.buffer_size > clients,
    'buffer_size',
    f'at most the {clients} clients: none is twice in a buffer',
    cause='fewer clients than before',
  )


def _check_evaluation(settings: Settings, refuse_if: Refuse) -> None:
  data, evaluation, system = settings.data, settings.evaluation, settings.system
  refuse_if(
    not evaluation.views,
    'views',
    'at least one view, to be evaluated at the end',
    ('initial', 'finetuned'),
    'eval_views was meant: the views during the rounds',
  )
  refuse_if(
    evaluation.select == 'validation' and not data.validation_fraction,
    'select',
    'last without validation_fraction: nothing is kept for choosing',
    ('validation_fraction=0.1', 'select=last'),
  )
  refuse_if(
    data.num_seen_clients < 1,
    'unseen_clients',
    f'at most {data.num_clients - 1}: a cohort has at least one client',
    ('unseen_clients=0', 'a larger num_clients, which counts all'),
    'num_clients taken for the number of those that train',
    f'{data.unseen_clients} of {data.num_clients} clients',
  )
  refuse_if(
    system.debug and system.clients_placement == 'host',
    'clients_placement',
    'device with debug=True: its loop runs on the device alone',
    ('clients_placement=device', 'debug=False'),
  )


def _check_privacy(settings: Settings, refuse_if: Refuse) -> None:
  dp, training = settings.dp, settings.training
  others = ('clip_quantile', 'noise_multiplier', 'epsilon', 'delta')
  given = [f'dp.{name}' for name in others if getattr(dp, name)]
  given += ['dp.bands'] * (dp.bands > 1)
  both = dp.noise_multiplier, dp.epsilon
  noise = 'dp.epsilon=8', 'dp.noise_multiplier=1'
  for mistake in (
    (given and not dp.clip, 'dp.clip', f'above 0 with {given}', ('dp.clip=1',)),
    (dp.clip and all(both), 'dp.epsilon', '0, or dp.noise_multiplier=0', noise),
    (dp.clip and not any(both), 'dp.epsilon', 'a budget, or a noise', noise),
    (dp.clip and not dp.delta, 'dp.delta', 'above 0', ('dp.delta=1e-5',)),
    (
      dp.clip_quantile and training.deadline,
      'dp.clip_quantile',
      '0 with a deadline: nobody knows how many are late, of whom no norm is '
      'counted',
      ('dp.clip_quantile=0', 'deadline=0'),
    ),
  ):
    refuse_if(*mistake)
  saved = settings.evaluation.save_clients
  refuse_if(
    dp.clip and saved and saved != FIELDS['save_clients'].default,
    'save_clients',
    '() with dp.clip: a personalised model holds the data of its client',
    ('save_clients=()', 'dp.clip=0'),
  )
  is_cyclic, rate = training.sampling == TURNS, training.client_fraction
  refuse_if(
    is_cyclic != (dp.bands > 1),
    'dp.bands',
    'above 1 with sampling=cyclic and 1 without: a client may take part in '
    'one of so many rounds',
    ('sampling=cyclic and dp.bands=4', 'sampling=poisson and dp.bands=1'),
  )
  clients, rounds = settings.data.num_seen_clients, training.num_rounds
  refuse_if(
    is_cyclic
    and (dp.bands > rounds or clients % dp.bands or rate * dp.bands > 1),
    'dp.bands',
    f'a divisor of {clients}, the clients, at most {rounds}, the rounds, and '
    f'{1 / rate:g}, 1 / client_fraction: groups of equal size take turns',
    ('sampling=poisson and dp.bands=1',),
  )
  norms, share = settings.model.norm_statistics, training.server_data_fraction
  for is_made, instead, what in (
    (training.aggregation == 'examples', 'aggregation=uniform', 'n_i / n'),
    (norms == 'running', 'norm_statistics=running_local', 'a mean variance'),
    (share, 'server_data_fraction=0', 'the server that trains on examples'),
    (training.buffer_size, 'buffer_size=0', 'who comes first to a buffer'),
  ):
    refuse_if(
      dp.clip and is_made,
      'dp.clip',
      f'0, or {instead}: noise in the sum of changes does not hide {what}',
      (instead, 'dp.clip=0'),
    )


def _check_clients(settings: Settings, refuse_if: Refuse) -> None:
  data, last = settings.data, settings.data.num_seen_clients - 1
  absent = [one for one in settings.evaluation.save_clients if one > last]
  refuse_if(
    absent,
    'save_clients',
    f'ids of clients, 0 to {last}',
    cause='fewer clients than before, or one of unseen_clients',
    got=absent[:1],
  )
  for name, is_kept in (
    (f'test_partition={data.test_partition}', data.test_partition in OF_OWN),
    ('validation_fraction', data.validation_fraction),
    ('unseen_clients', data.unseen_clients),
  ):
    refuse_if(
      settings.training.server_data_fraction and is_kept,
      'server_data_fraction',
      f'0 with {name}: the server would train on examples that are kept for '
      'testing, for choosing, or for clients who come later',
      ('server_data_fraction=0', f'no {name}'),
      'two settings of different experiments',
    )
