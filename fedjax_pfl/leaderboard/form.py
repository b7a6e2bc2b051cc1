"""A form of the leaderboard: its budget, and the settings of each training."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.data.client_data import shapes_of_clients
from fedjax_pfl.evaluation.choices import families
from fedjax_pfl.evaluation.evaluate import view_names
from fedjax_pfl.federated.rounds import stage_shapes
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.settings.schema import MAX_SEED
from fedjax_pfl.training.build_method import outline_stages, peek_shape
from fedjax_pfl.training.views import FINETUNED

BASELINES = 'fedavg', 'local_only'  # of every comparison
INITIAL = 'initial'
RATE = ('learning_rate', 'finetune.learning_rate')
Fields = Mapping[str, Any]


class Form(NamedTuple):
  """What is trained, by one protocol; see configs/leaderboard.py."""

  name: str
  base: Fields  # of every run
  partitions: Mapping[str, Fields]  # by the name that is shown
  methods: tuple[str, ...]  # BASELINES are the first
  own: Mapping[str, Fields]  # fields of a method that differ, as its budget
  rates: tuple[float, ...]  # the grid of learning rates
  rate_fields: Mapping[str, tuple[str, ...]]  # that it replaces, if not RATE
  own_views: Mapping[str, str]  # after personalisation, of methods that say so
  seeds: tuple[int, ...]  # of every number
  tuning_seeds: int  # how many of them, from the first, choose the rate
  minutes: float  # of all trainings on two cores, estimated

  @property
  def num_trainings(self) -> int:
    """Return how many trainings the form has, if none diverges."""
    tuning = (len(self.rates) - 1) * self.tuning_seeds
    cells = sum(
      1 if 'partition' in self.own.get(method, {}) else len(self.partitions)
      for method in self.methods
    )
    return cells * (tuning + len(self.seeds))


def make_form(**fields: Any) -> Form:
  """Return the form; refuse seeds that are no numbers, one, or one twice."""
  seeds = fields['seeds']
  are_numbers = all(
    isinstance(seed, int) and 0 <= seed <= MAX_SEED for seed in seeds
  )
  if not are_numbers or not 2 <= len(seeds) == len(set(seeds)):
    raise bad_input(
      'seeds',
      got=','.join(map(str, seeds)),
      expected='two or more different whole numbers, 0 or more',
      choices=['0,1,2', '3,4,5'],
      cause='a number of seeds instead of the seeds, or one twice; one seed '
      'says nothing about others',
    )
  tuning = min(fields['tuning_seeds'], len(seeds))
  return Form(**{**fields, 'seeds': tuple(seeds), 'tuning_seeds': tuning})


def settings_of(
  form: Form,
  method: str,
  partition: str,
  rate: float,
  seed: int,
  views: Sequence[str] = (),
) -> Settings:
  """Return the settings of one training; `views` are those of `views_of`."""
  own = dict(form.own.get(method, {}))
  fields = {**form.base, 'finetune': dict(form.base['finetune'])}
  if 'partition' not in own:
    fields |= form.partitions[partition]
  fields |= own
  hp = dict(fields.pop('hp', {}))
  for name in form.rate_fields.get(method, RATE):
    group, _, last = name.rpartition('.')
    place = {'hp': hp, 'finetune': fields['finetune']}.get(group, fields)
    place[last] = rate
  if views and 'views' not in own:
    fields['views'] = tuple(views)
  return parse_config({**fields, 'algorithm': method, 'hp': hp, 'seed': seed})


def views_of(form: Form, method: str) -> tuple[str, ...]:
  """Return the views in which a method is shown: before, then after.

  They are those that its `personalize` returns. Before personalisation is
  'initial', if the method has it; after it the method's `own_views`, else
  'finetuned', else the first of the others with its family (mix_0.0 to
  mix_1.0). Only shapes are computed.
  """
  settings, shape, stages = _outline(form, method)
  data = shapes_of_clients(shape, settings.data.num_seen_clients)
  *_, (last, *states) = stage_shapes(stages, data)
  names = view_names(last.algorithm, *states, data)
  others = [name for name in names if name != INITIAL]
  default = FINETUNED if FINETUNED in names else others[0]
  after = [form.own_views.get(method, default)]
  for family in families(others).values():
    if after[0] in family:
      after = family
  return *(name for name in names if name == INITIAL), *after


def whole_stages(form: Form, method: str) -> list[str]:
  """Return the stages in whose rounds all clients take part."""
  _, _, stages = _outline(form, method)
  return [stage.name for stage in stages if stage.full_participation]


def _outline(form, method):
  """Return any settings of a method, the shape of an example, its stages."""
  partition = next(iter(form.partitions))
  settings = settings_of(form, method, partition, form.rates[0], form.seeds[0])
  return settings, peek_shape(settings.data), outline_stages(settings)


def is_reference(form: Form, settings: Settings) -> bool:
  """Return whether clients are not those of the form: no row to compare."""
  return settings.data.num_clients != form.base['num_clients']
