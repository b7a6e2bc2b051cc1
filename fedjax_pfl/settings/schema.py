"""The typed settings, and every field of a config by its name.

Sections are records: those that a room is handed as they are stand in its
files (client/, around/), the others here, in data_fields.py, and in
training_fields.py. Below `hp` are the HParams of each method.

From here come the typed `Settings`, the sentence for a bad value,
docs/settings.md, --help, and the keys by which runs are recognised.
"""

import dataclasses
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.around.architectures import Architectures
from fedjax_pfl.around.compression import Compression
from fedjax_pfl.around.failures import Failures
from fedjax_pfl.around.privacy import Privacy
from fedjax_pfl.around.server_optimiser import ServerOptimiser
from fedjax_pfl.around.server_training import ServerTraining
from fedjax_pfl.around.sim_time import Speeds
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.client.personalization import Finetuning
from fedjax_pfl.core import records, rules, user_code
from fedjax_pfl.core.records import EVALUATES, NOTHING, Field, field, record
from fedjax_pfl.core.rules import Rule, boolean, count, is_int, one_of
from fedjax_pfl.data.client_data import PLACEMENTS
from fedjax_pfl.data.held_out import ADAPT_ON
from fedjax_pfl.evaluation.metrics import SCORINGS
from fedjax_pfl.federated.chunking import CHUNKS
from fedjax_pfl.federated.sampling import cohort_size
from fedjax_pfl.runs.trackers import NONE, TRACKERS
from fedjax_pfl.settings.data_fields import DataSettings
from fedjax_pfl.settings.training_fields import ModelSettings, TrainingSettings

# Keys have 32 bits of a seed: a larger one would be that of another run.
MAX_SEED = 2**32 - 1
SELECT = ('last', 'validation')
VIEWS = rules.tuple_of(
  lambda value: isinstance(value, str),
  'names of views, such as "initial" and "finetuned"',
  "a single name: write ('initial',)",
)


@record()
class EvaluationSettings:
  """What is evaluated, on what, and when.

  Args:
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

  adapt_on: str = field('train', one_of(ADAPT_ON), EVALUATES)
  views: tuple[str, ...] = field(('initial', 'finetuned'), VIEWS, NOTHING)
  eval_views: tuple[str, ...] = field(('initial',), VIEWS)
  scoring: str = field('exact', one_of(SCORINGS), EVALUATES)
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
  eval_global_model: bool = field(False, boolean())
  eval_every: int = field(0, count('rounds', smallest=0))
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


@record()
class SystemSettings:
  """How a run is computed, logged and saved.

  Args:
    checkpoint_every: rounds between two checkpoints; 0: with every evaluation
    log_every: how many rounds one compiled call runs; 0: 1 on a CPU, else
      eval_every
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

  checkpoint_every: int = field(0, count('rounds', smallest=0), NOTHING)
  log_every: int = field(0, count('rounds', smallest=0), NOTHING)
  clients_per_chunk: int | str = field('auto', CHUNKS, NOTHING)
  devices: int = field(0, count('devices', smallest=0), NOTHING, resumable=True)
  clients_placement: str = field(
    'device', one_of(PLACEMENTS), NOTHING, resumable=True
  )
  tracker: str = field(
    NONE,
    one_of(TRACKERS, 'a service', 'tensorboard: every run writes tb/'),
    NOTHING,
    resumable=True,
  )
  debug: bool = field(False, boolean(), NOTHING, resumable=True)
  quick: bool = field(False, boolean(), NOTHING)


@record()
class Settings:
  """A config after validation: frozen and typed, in sections.

  Args:
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
    records.or_code(
      one_of(algorithms.available(), 'a file in fedjax_pfl/algorithms')
    ),
  )
  hp: Mapping[str, Any] = field(
    MappingProxyType({}),
    Rule(
      lambda value: isinstance(value, Mapping),
      'hyperparameters by name, {} for the defaults of the method',
      'one value: write hp.<name>',
    ),
    stored=lambda hp: MappingProxyType(
      {name: records.without_numpy(value) for name, value in hp.items()}
    ),
  )
  init_from: str = field(
    '',
    records.path(
      'a finished run or a .safetensors file as a string; "" is none'
    ),
    stored=os.path.expanduser,
  )
  seed: int = field(
    0,
    Rule(
      lambda value: is_int(value) and 0 <= value <= MAX_SEED,
      f'a whole number as a seed, 0 up to {MAX_SEED}',
      'a list of seeds: each seed is a run; or a seed made from the time',
    ),
    largest=MAX_SEED,
  )
  data: DataSettings = DataSettings()
  model: ModelSettings = ModelSettings()
  architectures: Architectures = Architectures()
  training: TrainingSettings = TrainingSettings()
  train: LocalTraining = LocalTraining()
  failures: Failures = Failures()
  speeds: Speeds = Speeds()
  server: ServerOptimiser = ServerOptimiser()
  server_training: ServerTraining = ServerTraining()
  compression: Compression = Compression()
  dp: Privacy = Privacy()
  finetune: Finetuning = Finetuning()
  evaluation: EvaluationSettings = EvaluationSettings()
  system: SystemSettings = SystemSettings()

  @property
  def num_drawn(self) -> int:
    """Return how many clients are drawn for a round, or are at work at once."""
    fraction = self.training.client_fraction
    return cohort_size(self.data.num_seen_clients, fraction)

  @property
  def num_rounds(self) -> int:
    """Return the rounds: given, or floor(total_epochs / local_epochs)."""
    given, epochs = self.training.rounds, self.training.total_epochs
    return epochs // self.train.epochs if given is None else given


SECTIONS: dict[str, type] = {
  own.name: own.type for own in dataclasses.fields(Settings) if not own.metadata
}
FIELDS: dict[str, Field] = {
  one.name: one._replace(section=section)
  for section, kind in {'': Settings, **SECTIONS}.items()
  for one in kind.ruled.values()
  if one.in_config
}
# The sections whose name is before those of their fields: dp, finetune.
GROUPED = ('dp', 'finetune')
# What may differ between two parts of one run.
RESUMABLE = tuple(name for name, one in FIELDS.items() if one.resumable)


def changing(what: str) -> tuple[str, ...]:
  """Return the fields that change the numbers of TRAINING, or EVALUATION."""
  return tuple(name for name, one in FIELDS.items() if what in one.changes)
