"""Settings that are right each, but not beside one another."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.core.errors import BadInput, bad_input
from fedjax_pfl.core.user_code import is_code
from fedjax_pfl.data.partition import OF_OWN
from fedjax_pfl.federated.sampling import DEFAULT, TURNS
from fedjax_pfl.settings.hyperparameters import own_defaults
from fedjax_pfl.settings.schema import FIELDS, Settings

# The loss of every step, and the numbers of every round, are kept in memory.
MAX_EPOCHS = 100_000
MAX_ROUNDS = 1_000_000


def check_together(settings: Settings, flat: Mapping[str, Any]) -> None:
  """Refuse settings that contradict one another; `flat` has them by name."""

  def refuse(is_made, name, expected, choices=None, cause='', got=None):
    if is_made:
      how = {'expected': expected, 'choices': choices, 'cause': cause}
      raise bad_input(name, got=flat[name] if got is None else got, **how)

  _of_rounds(settings, refuse)
  _of_evaluation(settings, refuse)
  _of_buffers(settings, refuse)
  _of_privacy(settings, refuse)
  _of_clients(settings, refuse)
  _of_models(settings, refuse)


def _of_rounds(settings: Settings, refuse: Callable) -> None:
  training, rounds = settings.training, settings.num_rounds
  refuse(
    training.rounds is None and rounds < 1,
    'local_epochs',
    f'at most total_epochs, {training.total_epochs}: rounds are '
    'total_epochs / local_epochs',
  )
  for name, length, largest in (
    ('rounds', rounds, MAX_ROUNDS),
    ('local_epochs', settings.train.epochs, MAX_EPOCHS),
    ('finetune.epochs', max(settings.finetune.epochs), MAX_EPOCHS),
  ):
    refuse(length > largest, name, f'at most {largest}', got=length)
  refuse(
    training.rounds == 0 and not settings.init_from,
    'rounds',
    FIELDS['rounds'].rule.expected,
    ('rounds=0 with init_from=RUN, to evaluate the model of that run',),
  )
  refuse(
    settings.speeds.deadline and not settings.speeds,
    'deadline',
    '0 without client_speeds: no time passes',
    ('client_speeds=lognormal', 'client_speeds=FILE', 'deadline=0'),
  )
  method, model = settings.algorithm, settings.model
  rank = model.lora_rank
  refuse(
    rank and model.frozen_features,
    'lora_rank',
    '0 with frozen_features: adapters change the features',
    ('lora_rank=0', 'frozen_features=False'),
  )
  refuse(
    model.norm_statistics == 'frozen' and not settings.init_from,
    'norm_statistics',
    'frozen with init_from alone: statistics that were never averaged '
    'normalise nothing',
    ('init_from=FILE.safetensors', 'norm_statistics=running'),
  )
  refuse(
    rank and method != 'partial' and not is_code(method),
    'lora_rank',
    'partial, whose patterns say what is frozen: other methods train and send '
    'all kernels beside the adapters',
    ('algorithm=partial', "hp.shared='*/lora_*'"),
    got=f'{rank} with {method}',
  )


def _of_buffers(settings: Settings, refuse: Callable) -> None:
  speeds, clients = settings.speeds, settings.data.num_seen_clients
  in_rounds = speeds.deadline or settings.training.sampling != DEFAULT
  refuse(
    speeds.buffer_size and (not speeds or in_rounds),
    'buffer_size',
    '0 without client_speeds, with a deadline, or with another sampling: a '
    'server with a buffer waits for nobody, and has no cohorts',
    ('client_speeds=lognormal', 'deadline=0', 'buffer_size=0'),
  )
  refuse(
    speeds.buffer_size and settings.compression,
    'compression',
    'none with a buffer: the server scales late changes as models, which '
    'packed bits are not',
    ('compression=none', 'buffer_size=0'),
  )
  refuse(
    speeds.buffer_size > clients,
    'buffer_size',
    f'at most the {clients} clients: none is twice in a buffer',
  )


def _of_evaluation(settings: Settings, refuse: Callable) -> None:
  data, evaluation, system = settings.data, settings.evaluation, settings.system
  refuse(
    not evaluation.views,
    'views',
    'at least one view, to be evaluated at the end',
    ('initial', 'finetuned'),
    'eval_views was meant: the views during the rounds',
  )
  refuse(
    evaluation.select == 'validation' and not data.validation_fraction,
    'select',
    'last without validation_fraction: nothing is kept for choosing',
    ('validation_fraction=0.1', 'select=last'),
  )
  refuse(
    data.num_seen_clients < 1,
    'unseen_clients',
    f'at most {data.num_clients - 1}: a cohort has at least one client',
    ('unseen_clients=0', 'a larger num_clients, which counts all'),
    got=f'{data.unseen_clients} of {data.num_clients} clients',
  )
  refuse(
    system.debug and system.clients_placement == 'host',
    'clients_placement',
    'device with debug=True: its loop runs on the device alone',
    ('clients_placement=device', 'debug=False'),
  )


def _of_privacy(settings: Settings, refuse: Callable) -> None:
  dp, training, speeds = settings.dp, settings.training, settings.speeds
  others = ('clip_quantile', 'noise_multiplier', 'epsilon', 'delta')
  given = [f'dp.{name}' for name in others if getattr(dp, name)]
  given += ['dp.bands'] * (dp.bands > 1)
  both = dp.noise_multiplier, dp.epsilon
  noise = 'dp.epsilon=8', 'dp.noise_multiplier=1'
  clip = 'dp.clip=1', *(f'no {name}' for name in given)
  refuse(given and not dp, 'dp.clip', f'above 0 with {given}', clip)
  refuse(dp and all(both), 'dp.epsilon', '0, or dp.noise_multiplier=0', noise)
  refuse(dp and not any(both), 'dp.epsilon', 'a budget, or a noise', noise)
  refuse(dp and not dp.delta, 'dp.delta', 'above 0', ('dp.delta=1e-5',))
  refuse(
    dp.clip_quantile and speeds.deadline,
    'dp.clip_quantile',
    '0 with a deadline: nobody knows how many are late, of whom no norm is '
    'counted',
    ('dp.clip_quantile=0', 'deadline=0'),
  )
  saved = settings.evaluation.save_clients
  refuse(
    dp and saved and saved != FIELDS['save_clients'].default,
    'save_clients',
    '() with dp.clip: a personalised model holds the data of its client',
    ('save_clients=()', 'dp.clip=0'),
  )
  is_cyclic, rate = training.sampling == TURNS, training.client_fraction
  refuse(
    is_cyclic != (dp.bands > 1),
    'dp.bands',
    'above 1 with sampling=cyclic and 1 without: a client may take part in '
    'one of so many rounds',
    ('sampling=cyclic and dp.bands=4', 'sampling=poisson and dp.bands=1'),
  )
  clients, rounds = settings.data.num_seen_clients, settings.num_rounds
  refuse(
    is_cyclic
    and (dp.bands > rounds or clients % dp.bands or rate * dp.bands > 1),
    'dp.bands',
    f'a divisor of {clients}, the clients, at most {rounds}, the rounds, and '
    f'{1 / rate:g}, 1 / client_fraction: groups of equal size take turns',
    ('sampling=poisson and dp.bands=1',),
  )
  is_weighted = settings.train.aggregation == 'examples'
  model = settings.model
  is_frozen = model.norm_statistics == 'frozen' and not model.frozen_features
  runs, trains = model.norm_statistics == 'running', settings.server_training
  for instead, is_made, what in (
    ('aggregation=uniform', is_weighted, 'n_i / n'),
    ('norm_statistics=running_local', runs, 'a mean variance'),
    ('frozen_features=True', is_frozen, 'and changes frozen statistics'),
    ('server_data_fraction=0', trains, 'the server that trains on examples'),
    ('buffer_size=0', speeds.buffer_size, 'who comes first to a buffer'),
  ):
    refuse(
      dp and is_made,
      'dp.clip',
      f'0, or {instead}: noise in the sum of changes does not hide {what}',
      (instead, 'dp.clip=0'),
    )


def _of_clients(settings: Settings, refuse: Callable) -> None:
  data, last = settings.data, settings.data.num_seen_clients - 1
  absent = [one for one in settings.evaluation.save_clients if one > last]
  refuse(
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
    refuse(
      settings.server_training and is_kept,
      'server_data_fraction',
      f'0 with {name}: the server would train on examples that are kept for '
      'testing, for choosing, or for clients who come later',
      ('server_data_fraction=0', f'no {name}'),
    )


def _of_models(settings: Settings, refuse: Callable) -> None:
  """Refuse what is of one model, and so not of several."""
  model, chunk = settings.model, settings.system.clients_per_chunk
  for without, is_given in {
    'no init_from': settings.init_from,
    'dp.clip=0': settings.dp,
    'server_data_fraction=0': settings.server_training,
    'norm_statistics=batch': model.norm_statistics == 'running_local',
    'frozen_features=False': model.frozen_features,
    'clients_per_chunk=1': chunk not in ('auto', 1),
  }.items():
    is_made = settings.architectures.models and is_given
    name = without.removeprefix('no ').partition('=')[0]
    choices = 'models=()', without
    refuse(is_made, 'models', f'one model with {name}', choices)


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
    is_on = any(one == value if field.only else one != off for one in values)
    given = [flat[name] for flat in flats]
    if not is_on and any(one != field.default for one in given):
      raise _idle(name, field.default, given, needed, field.only)
  for method in dict.fromkeys(flat['algorithm'] for flat in flats):
    own = own_defaults(method)
    hps = [own | flat['hp'] for flat in flats if flat['algorithm'] == method]
    parts = getattr(algorithms.load(method), 'PARTS', {})
    for name, (main, *values) in parts.items():
      given, needed = [hp[name] for hp in hps], f'hp.{main}={values[0]}'
      is_on = any(hp[main] in values for hp in hps)
      if not is_on and any(one != own[name] for one in given):
        raise _idle(f'hp.{name}', own[name], given, needed)


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
