"""The typed settings, and every field of a config by its name.

Sections are records: those that a room is handed as they are stand in its
files (data/, client/, around/), the others here. Below `hp` are
the HParams of each method.

From here come the typed `Settings`, the sentence for a bad value,
docs/settings.md, --help, and the keys by which runs are recognised.
"""

import dataclasses
import os
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.around.aggregation import Aggregation
from fedjax_pfl.around.architectures import Architectures
from fedjax_pfl.around.attacks import Attack
from fedjax_pfl.around.compression import Compression
from fedjax_pfl.around.failures import Failures
from fedjax_pfl.around.privacy import Privacy
from fedjax_pfl.around.server_optimiser import ServerOptimiser
from fedjax_pfl.around.server_training import ServerTraining
from fedjax_pfl.around.sim_time import Speeds
from fedjax_pfl.client import optimisers
from fedjax_pfl.client.local_training import LocalTraining
from fedjax_pfl.client.personalization import Finetuning, names_of
from fedjax_pfl.core import records, rules, user_code
from fedjax_pfl.core.norm_stats import AUTO, NORM_STATISTICS
from fedjax_pfl.core.records import (
  BOTH,
  EVALUATES,
  NOTHING,
  field,
  or_code,
  record,
)
from fedjax_pfl.core.rules import Rule, boolean, count, is_int, one_of
from fedjax_pfl.data.client_data import PLACEMENTS
from fedjax_pfl.data.fields import DataSettings
from fedjax_pfl.data.held_out import ADAPT_ON
from fedjax_pfl.evaluation.choices import FINETUNED, families, main_view
from fedjax_pfl.evaluation.metrics import SCORINGS
from fedjax_pfl.evaluation.own_metrics import ASKED
from fedjax_pfl.federated.chunking import CHUNKS
from fedjax_pfl.federated.sampling import (
  DEFAULT,
  FRACTION,
  SAMPLINGS,
  cohort_size,
)
from fedjax_pfl.models.head import HEAD_BIASES, HEAD_INITS
from fedjax_pfl.models.module_task import PRECISIONS
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.models.replace_layers import CONV_IMPLS
from fedjax_pfl.runs.trackers import NONE, TRACKERS

# Keys have 32 bits of a seed: a larger one would be that of another run.
MAX_SEED = 2**32 - 1
SELECT = ('last', 'validation')
VIEWS = rules.tuple_of(
  lambda value: isinstance(value, str),
  'names of views, such as "initial" and "finetuned"',
  "a single name: write ('initial',)",
)
LAYERS = rules.tuple_of(
  lambda value: isinstance(value, str) and bool(value),
  "patterns for paths of layers, such as 'block*/qkv'",
  'a single word in a config: write ("*",)',
)
ROUNDS = Rule(
  lambda value: value is None or (is_int(value) and value >= 0),
  'a whole number of rounds, 1 or more (0 with init_from), or None: '
  'total_epochs / local_epochs',
)

OTHER_SERVICE = 'tensorboard: every run has tb/; mlflow: docs/howto/trackers.md'


@record()
class ModelSettings:
  """The architecture, and how its head begins.

  Args:
    name: the architecture; or a module of your own
    head_init: weights of the head; default: the model's own
    head_bias: bias of the head; default: the model's own
    norm_statistics: of BatchNorm in testing; auto: running for data of your
      own, batch for others; batch: those of the test batch; running: averages
      over training batches, which clients send; running_local: averages that
      clients keep (SiloBN); frozen: those of init_from, in training, too
    model_image_size: images are scaled to so many pixels a side on the device,
      as the last step before the model; 0: they stay as they are
    frozen_features: the model of init_from but its head is frozen, and computes
      the features of all images once; the method trains the head
    conv_impl: how convolutions are computed; auto: gemm on a CPU; on a GPU in
      float32 gemm for five models, run on a card for convnet4 alone; else fused
    precision: float32 on every device; tf32: products with rounded inputs;
      mixed: bfloat16 activations, float32 parameters
    lora_rank: rank of adapters beside the kernels (LoRA); 0: none
    lora_targets: layers that have one; *: all with a kernel, but the head
    lora_alpha: alpha / rank is the factor of an adapter
  """

  name: str = field(
    'convnet4', or_code(one_of(MODELS, 'a known model')), name='model'
  )
  head_init: str = field('default', one_of(HEAD_INITS))
  head_bias: str = field('default', one_of(HEAD_BIASES))
  norm_statistics: str = field(AUTO, one_of((AUTO, *NORM_STATISTICS)))
  model_image_size: int = field(0, count('pixels', smallest=0))
  frozen_features: bool = field(
    False, rules.boolean(), needs=('init_from', 'FILE.safetensors')
  )
  conv_impl: str = field('auto', one_of(CONV_IMPLS), NOTHING)
  precision: str = field(
    'float32',
    one_of(PRECISIONS, 'a precision', 'a dtype: bfloat16 is called mixed'),
  )
  lora_rank: int = field(0, count('dimensions', smallest=0))
  lora_targets: tuple[str, ...] = field(('*',), LAYERS, needs=('lora_rank', 8))
  lora_alpha: float = field(16.0, rules.above(0), needs=('lora_rank', 8))


@record()
class TrainingSettings:
  """The rounds: how many, who takes part, and the learning rate of each.

  Args:
    client_fraction: share of the clients that take part in a round; unseen ones
      do not count
    sampling: fixed: as many clients in each round; poisson: each joins with
      probability client_fraction; cyclic: dp.bands groups of clients take
      turns, each joins with dp.bands times that; in_turn: after all others;
      or a sampler of your own
    total_epochs: over a client's data: rounds = floor(total_epochs /
      local_epochs)
    rounds: given: total_epochs is not used; 0 with init_from: only evaluate
    learning_rate: in the first round
    lr_milestones: fractions of all rounds from which on the learning rate is a
      tenth
    lr_decay: factor of the learning rate in every round, from the first on
    around: a wrapper of your own around the method
  """

  client_fraction: float = field(0.1, FRACTION)
  sampling: str = field(DEFAULT, or_code(one_of(SAMPLINGS)))
  total_epochs: int = field(
    320, count('epochs', 'rounds were meant: they have a field of that name')
  )
  rounds: int | None = field(None, ROUNDS)
  learning_rate: float = field(0.1, optimisers.LEARNING_RATE, traced=True)
  lr_milestones: tuple[float, ...] = field((0.5, 0.75), optimisers.DROPS)
  lr_decay: float = field(
    1.0,
    rules.interval('(0, 1]', 'what is taken off: 0.005 for 0.995'),
    traced=True,
  )
  around: str = field('', or_code(Rule(lambda value: value == '', 'nothing')))


@record()
class EvaluationSettings:
  """What is evaluated, on what, and when.

  Args:
    adapt_on: what a client adapts on; test_half: every other one of its tests,
      and it is evaluated on the rest, for every method alike
    views: model variants that are evaluated at the end
    eval_views: those evaluated during the rounds
    scoring: exact, or means over batches: batches, whole_batches
    metrics: what is evaluated beside accuracy: auroc, auprc, macro_f1,
      balanced_accuracy and brier of classes and bits; rmse, mae and r2 of
      numbers; c_index of events; or functions of your own
    eval_global_model: evaluate the global model on the whole test set, too
    eval_every: rounds between two evaluations; 0: a sixteenth of all
      rounds, at least 1
    eval_clients: how many clients are evaluated, drawn by the seed, and those
      of save_clients; 0: all. The interval of the mean is that of the draw
    select: the round whose models are the result: the last, or the best one on
      validation_fraction
    tune_by: what select=validation chooses by: accuracy, loss, or another
      measure of each client, such as a metric of your own by its name
    save_clients: clients whose personalised models are saved in model/
  """

  adapt_on: str = field('train', one_of(ADAPT_ON), EVALUATES)
  views: tuple[str, ...] = field(('initial', 'finetuned'), VIEWS, NOTHING)
  eval_views: tuple[str, ...] = field(('initial',), VIEWS)
  scoring: str = field('exact', one_of(SCORINGS), EVALUATES)
  metrics: tuple[str, ...] = field(
    (),
    rules.tuple_of(
      lambda name: user_code.is_code(name) or name in ASKED,
      f'names of {", ".join(ASKED)}, or functions of your own as '
      f'{user_code.FORM}; accuracy and others are always there',
      'the name of a function alone, without its file',
    ),
    EVALUATES,
  )
  eval_global_model: bool = field(False, boolean())
  eval_every: int = field(0, count('rounds', smallest=0))
  eval_clients: int = field(0, count('clients', smallest=0), EVALUATES)
  select: str = field(
    'last',
    one_of(SELECT, 'a round', 'a choice by the tests, which is test_best'),
    EVALUATES,
  )
  tune_by: str = field(
    'accuracy',
    Rule(lambda value: isinstance(value, str), 'the name of a measure'),
    BOTH,
    needs=('select', 'validation'),
    only=True,
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
    model_devices: devices over which each model is divided; devices /
      model_devices clients then train at the same time
    clients_placement: where states and indices of clients are; host: a round is
      sent those of its cohort, and an accelerator its examples; disk: states
      are files of the run; auto: the first of these three with room
    tracker: send metrics and result to a service, beside TensorBoard's tb/
    debug: run clients in a Python loop, and name the first step that diverges
    quick: synthetic images may stand in for absent ones
  """

  checkpoint_every: int = field(0, count('rounds', smallest=0), NOTHING)
  log_every: int = field(0, count('rounds', smallest=0), NOTHING)
  clients_per_chunk: int | str = field('auto', CHUNKS, NOTHING)
  devices: int = field(0, count('devices', smallest=0), NOTHING, resumable=True)
  model_devices: int = field(1, count('devices'), NOTHING, resumable=True)
  clients_placement: str = field(
    'device', one_of((*PLACEMENTS, 'disk', 'auto')), NOTHING, resumable=True
  )
  tracker: str = field(
    NONE,
    or_code(one_of(TRACKERS, 'a service', OTHER_SERVICE)),
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
    or_code(one_of(algorithms.available(), 'a file in fedjax_pfl/algorithms')),
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
  aggregation: Aggregation = Aggregation()
  attack: Attack = Attack()
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
  def method(self) -> ModuleType:
    """Return the file of the method; code of the user's own is loaded."""
    return algorithms.load(self.algorithm)

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

  @property
  def final_views(self) -> tuple[str, ...]:
    """Return the views that are evaluated at the end.

    With `validation_fraction` also those among which it chooses.
    """
    views = self.evaluation.views
    if not self.data.validation_fraction or FINETUNED not in views:
      return views
    first = views.index(FINETUNED)
    more = self.candidate_views
    return tuple(dict.fromkeys((*views[:first], *more, *views[first:])))

  @property
  def candidate_views(self) -> tuple[str, ...]:
    """Return the views among which validation chooses, the preferred first.

    The main one, which is 'finetuned' or else the last of `views`; with it the
    shorter fine-tunings, of which 0 epochs are 'initial', and those by other
    rates that `views` has, or the others of its family (mix_0.0 to mix_1.0).
    """
    views = self.evaluation.views
    main = main_view(views)
    if main == FINETUNED:  # of all epochs, the shortest first
      epochs = {*self.finetune.epochs}
      fewest = ['initial'] * (0 in epochs and 'initial' in views)
      rates = [x for x in self.finetune.factors if f'{main}_x{x:g}' in views]
      return (*fewest, *names_of(tuple(sorted(epochs - {0})), rates))
    family = [names for names in families(views).values() if main in names]
    return tuple(*family) or (main,)


SECTIONS: dict[str, type] = {
  part.name: part.type
  for part in dataclasses.fields(Settings)
  if not part.metadata
}
FIELDS: dict[str, records.Field] = {
  one.name: one._replace(section=section)
  for section, kind in {'': Settings, **SECTIONS}.items()
  for one in kind.ruled.values()
  if one.in_config
}
# The sections whose name is before those of their fields: dp, finetune.
GROUPED = ('dp', 'finetune')
# What may differ between two parts of one run.
RESUMABLE = tuple(name for name, field in FIELDS.items() if field.resumable)


def changing(what: str) -> tuple[str, ...]:
  """Return the fields that change the numbers of TRAINING, or EVALUATION."""
  return tuple(name for name, field in FIELDS.items() if what in field.changes)
