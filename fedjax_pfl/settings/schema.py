"""The typed settings, and every field of a config by its name.

The fields, their defaults and rules are here (fine-tuning, evaluation, system),
in data_fields.py, and in training_fields.py (model, training, privacy); those
below `hp` are the HParams of each method.

From here come the typed `Settings`, the sentence for a bad value,
docs/settings.md, --help, and the keys by which runs are recognised.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.client.personalization import RULES
from fedjax_pfl.core import rules, user_code
from fedjax_pfl.core.rules import Rule, boolean, count, is_int, one_of
from fedjax_pfl.data.client_data import PLACEMENTS
from fedjax_pfl.data.held_out import ADAPT_ON
from fedjax_pfl.evaluation.metrics import SCORINGS
from fedjax_pfl.federated.chunking import CHUNKS
from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.runs.trackers import NONE, TRACKERS
from fedjax_pfl.settings.data_fields import DataSettings
from fedjax_pfl.settings.field import (
  EVALUATES,
  MAX_SEED,
  NOTHING,
  Field,
  field,
  fields_of,
  or_code,
  path,
  record,
)
from fedjax_pfl.settings.training_fields import (
  ModelSettings,
  PrivacySettings,
  TrainingSettings,
)

ON_DIVERGENCE = ('stop', 'exclude')
SELECT = ('last', 'validation')
FRACTION = 'a fraction instead of rounds'
VIEWS = rules.tuple_of(
  lambda value: isinstance(value, str),
  'names of views, such as "initial" and "finetuned"',
  "a single name: write ('initial',)",
)


@record
class FinetuneSettings:
  """Fine-tuning of the global model by each client, for evaluation.

  Attributes:
    epochs: several: one fine-tuning, with a view for each of them: name
      finetuned_1, .., finetuned (the last) in `views`
    trainable: full, body, head, or layers: 'conv1+bn1'
    learning_rate: of SGD, constant
    momentum: of SGD
    batch_size: examples of a step
  """

  epochs: tuple[int, ...] = field((5,), RULES['epochs'], EVALUATES)
  trainable: str = field(
    'full',
    # Whether the model has these layers is checked when the model is known.
    Rule(
      lambda value: isinstance(value, str) and all(value.split('+')),
      "'full', 'body', 'head', or names of layers joined by '+'",
      'a list of layers: write "conv1+bn1"',
    ),
    EVALUATES,
  )
  learning_rate: float = field(
    1e-3, RULES['learning_rate'], EVALUATES, traced=True
  )
  momentum: float = field(0.9, RULES['momentum'], EVALUATES, traced=True)
  batch_size: int = field(50, RULES['batch_size'], EVALUATES)


@record
class EvaluationSettings:
  """What is evaluated, on what, and when.

  Attributes:
    adapt_on: what a client adapts on; test_half: every other one of its tests,
      and it is evaluated on the rest, for every method alike
    views: model variants that are evaluated at the end
    eval_views: those evaluated during the rounds
    scoring: exact, or means over batches: batches, whole_batches
    metrics: functions of your own that are evaluated beside accuracy
    eval_global_model: evaluate the global model on the whole test set, too
    eval_every: rounds between two evaluations; 0: a sixteenth of all
      rounds, at least 1
    select: the round whose models are the result: the last, or the best one on
      validation_fraction
    save_clients: clients whose personalised models are saved in model/
  """

  adapt_on: str = field(
    'train', one_of(ADAPT_ON, 'what a client adapts on'), EVALUATES
  )
  views: tuple[str, ...] = field(('initial', 'finetuned'), VIEWS, NOTHING)
  eval_views: tuple[str, ...] = field(('initial',), VIEWS)
  scoring: str = field(
    'exact', one_of(SCORINGS, 'a way to count right answers'), EVALUATES
  )
  metrics: tuple[str, ...] = field(
    (),
    rules.tuple_of(
      user_code.is_code,
      f'functions of your own as {user_code.FORM}; accuracy and others are '
      'always there',
      'the name of a function alone, without its file',
    ),
    EVALUATES,
  )
  eval_global_model: bool = field(
    False, boolean('the number of tests, or the name of a test set')
  )
  eval_every: int = field(0, count('rounds', FRACTION, 0))
  select: str = field(
    'last',
    one_of(SELECT, 'a round', 'a choice by the tests, which is test_best'),
    EVALUATES,
  )
  save_clients: tuple[int, ...] = field(
    (0,),
    rules.tuple_of(
      lambda value: is_int(value) and value >= 0,
      'ids of clients, from 0',
      'a single id: write (0,)',
    ),
    NOTHING,
  )


@record
class SystemSettings:
  """How a run is computed, logged and saved.

  Attributes:
    checkpoint_every: rounds between two checkpoints; 0: with every evaluation
    log_every: rounds in one compiled call; 0: 1 on a CPU, else eval_every
    on_divergence: where a number is not finite: stop, or exclude the client
    clients_per_chunk: clients that vmap runs side by side
    devices: devices of each process that share the clients; 0: all, of a CPU as
      many cores as are fastest
    clients_placement: where states and indices of clients are; host: a round is
      sent those of its cohort
    tracker: send metrics and result to wandb or mlflow, beside TensorBoard's
      tb/
    debug: run clients in a Python loop, and name the first step that diverges
    quick: synthetic images may stand in for absent ones
  """

  checkpoint_every: int = field(
    0, count('rounds', 'minutes instead of rounds', 0), NOTHING
  )
  log_every: int = field(0, count('rounds', FRACTION, 0), NOTHING)
  on_divergence: str = field(
    'stop',
    one_of(ON_DIVERGENCE, 'what happens then', 'a client id, or yes or no'),
  )
  clients_per_chunk: int | str = field('auto', CHUNKS, NOTHING)
  devices: int = field(
    0,
    count('devices', 'the name of a device, or a list of them', 0),
    NOTHING,
    resumable=True,
  )
  clients_placement: str = field(
    'device',
    one_of(PLACEMENTS, 'a place of clients between rounds'),
    NOTHING,
    resumable=True,
  )
  tracker: str = field(
    NONE,
    one_of(TRACKERS, 'a service', 'tensorboard: every run writes tb/'),
    NOTHING,
    resumable=True,
  )
  debug: bool = field(
    False, boolean('a word instead of True or False'), NOTHING, resumable=True
  )
  quick: bool = field(
    False,
    boolean('a word; the config argument :quick sets more than this'),
    NOTHING,
  )


GROUPED = 'dp', 'finetune'  # their names have that of the section before them


@record
class Settings:
  """A config after validation: frozen and typed, in sections.

  Attributes:
    algorithm: the method: a file in fedjax_pfl/algorithms; or a file of your
      own
    hp: hyperparameters of the method by name; its file has their defaults
    init_from: begin with the final global model of a run directory, or a
      .safetensors
    seed: of all random numbers

  >>> settings = parse_config({'dataset': 'digits'})
  >>> settings.data.num_clients, settings.finetune.epochs
  (100, (5,))
  """

  algorithm: str = field(
    'fedavg',
    or_code(one_of(algorithms.available(), 'a file in fedjax_pfl/algorithms')),
  )
  hp: Mapping[str, Any] = field(
    MappingProxyType({}),
    Rule(
      lambda value: isinstance(value, Mapping),
      'hyperparameters by name, {} for the defaults of the method',
      'one value: write hp.<name>',
    ),
  )
  init_from: str = field(
    '', path('a finished run or a .safetensors file as a string; "" is none')
  )
  seed: int = field(
    0,
    Rule(
      lambda value: is_int(value) and 0 <= value <= MAX_SEED,
      f'a whole number as a seed, 0 to {MAX_SEED}',
      'a list of seeds: each seed is a run; or a seed made from the time',
    ),
  )
  data: DataSettings = DataSettings()
  model: ModelSettings = ModelSettings()
  training: TrainingSettings = TrainingSettings()
  dp: PrivacySettings = PrivacySettings()
  finetune: FinetuneSettings = FinetuneSettings()
  evaluation: EvaluationSettings = EvaluationSettings()
  system: SystemSettings = SystemSettings()

  @property
  def num_drawn(self) -> int:
    """Return how many clients are drawn for a round, or are at work at once."""
    fraction = self.training.client_fraction
    return cohort_size(self.data.num_seen_clients, fraction)


SECTIONS = {
  own.name: own.type for own in dataclasses.fields(Settings) if not own.metadata
}
FIELDS: dict[str, Field] = fields_of('', Settings)
for _section, _kind in SECTIONS.items():
  FIELDS |= fields_of(_section, _kind, f'{_section}.' * (_section in GROUPED))
# What may differ between two parts of one run.
RESUMABLE = tuple(name for name, one in FIELDS.items() if one.resumable)


def changing(what: str) -> tuple[str, ...]:
  """Return the fields that change the numbers of TRAINING, or EVALUATION."""
  return tuple(name for name, one in FIELDS.items() if what in one.changes)
