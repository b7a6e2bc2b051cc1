"""The typed settings, and every field of a config by its name.

The fields, their defaults and rules are in data_fields.py, training_fields.py
(model, training, fine-tuning, privacy) and run_fields.py (evaluation, system);
those below `hp` are the HParams of each method.

From here come the typed `Settings`, the sentence for a bad value,
docs/settings.md, --help, and the keys by which runs are recognised.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.core.rules import Rule, is_int, one_of
from fedjax_pfl.federated.cohort import cohort_size
from fedjax_pfl.settings.data_fields import DataSettings
from fedjax_pfl.settings.field import (
  MAX_SEED,
  Field,
  field,
  fields_of,
  or_code,
  path,
  record,
)
from fedjax_pfl.settings.run_fields import (
  EvaluationSettings,
  FinetuneSettings,
  SystemSettings,
)
from fedjax_pfl.settings.training_fields import (
  ModelSettings,
  PrivacySettings,
  TrainingSettings,
)

SECTIONS = {
  'data': DataSettings,
  'model': ModelSettings,
  'training': TrainingSettings,
  'dp': PrivacySettings,
  'finetune': FinetuneSettings,
  'evaluation': EvaluationSettings,
  'system': SystemSettings,
}
GROUPED = 'dp', 'finetune'  # their names have that of the section before them


@record
class Settings:
  """A config after validation: frozen and typed, in sections.

  >>> settings = parse_config({'dataset': 'digits'})
  >>> settings.data.num_clients, settings.finetune.epochs
  (100, (5,))
  """

  algorithm: str = field(
    'fedavg',
    or_code(one_of(algorithms.available(), 'a file in fedjax_pfl/algorithms')),
    'the method: a file in fedjax_pfl/algorithms; or a file of your own',
  )
  hp: Mapping[str, Any] = field(
    MappingProxyType({}),
    Rule(
      lambda value: isinstance(value, Mapping),
      'hyperparameters by name, {} for the defaults of the method',
      'one value: write hp.<name>',
    ),
    'hyperparameters of the method by name; its file has their defaults',
  )
  init_from: str = field(
    '',
    path('a finished run or a .safetensors file as a string; "" is none'),
    'begin with the final global model of a run directory, or a .safetensors',
  )
  seed: int = field(
    0,
    Rule(
      lambda value: is_int(value) and 0 <= value <= MAX_SEED,
      f'a whole number as a seed, 0 to {MAX_SEED}',
      'a list of seeds: each seed is a run; or a seed made from the time',
    ),
    'of all random numbers',
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


FIELDS: dict[str, Field] = fields_of('', Settings)
for _section, _kind in SECTIONS.items():
  FIELDS |= fields_of(_section, _kind, f'{_section}.' * (_section in GROUPED))
# What may differ between two parts of one run.
RESUMABLE = tuple(name for name, one in FIELDS.items() if one.resumable)


def changing(what: str) -> tuple[str, ...]:
  """Return the fields that change the numbers of TRAINING, or EVALUATION."""
  return tuple(name for name, one in FIELDS.items() if what in one.changes)
