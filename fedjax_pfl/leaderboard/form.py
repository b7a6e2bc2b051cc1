"""A form: what a comparison trains, and the settings of each training."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.evaluation.choices import families
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training.blank import load_blank
from fedjax_pfl.training.outline import Outline, outline, sketch
from fedjax_pfl.training.views import FINETUNED

INITIAL = 'initial'
# What a candidate's learning_rate replaces: fine-tuning has the same one.
RATE = ('learning_rate', 'finetune.learning_rate')
# Of every run: the last round alone is evaluated, and counts.
LAST_ROUND = {'eval_views': (), 'eval_every': 1_000_000, 'select': 'last'}
Fields = Mapping[str, Any]


class Form(NamedTuple):
  """What is trained, by one protocol; configs/leaderboard.py has five."""

  name: str
  base: Fields  # of every run
  partitions: Mapping[str, Fields]  # by the name that is shown
  methods: tuple[str, ...]
  baselines: tuple[str, ...]  # methods that all others are compared with
  own: Mapping[str, Mapping[str, Fields]]  # [partition][method]: what differs
  candidates: Mapping[str, tuple[Fields, ...]]  # of a method: equally many
  rate_fields: Mapping[str, tuple[str, ...]]  # of learning_rate, if not RATE
  own_views: Mapping[str, str]  # after personalisation, of methods that say so
  seeds: tuple[int, ...]  # of every number
  tuning_seeds: tuple[int, ...]  # of the choice

  def units(self) -> Iterator[tuple[str, str]]:
    """Yield (partition, method) of everything that is tuned and trained."""
    for partition in self.partitions:
      for method in self.methods:
        yield partition, method

  def only(self, partition: str) -> 'Form':
    """Return the form of one of its partitions."""
    known = one_of([*self.partitions], f'a partition of the form {self.name}')
    known.check('partition', partition)
    return self._replace(partitions={partition: self.partitions[partition]})

  @property
  def trainings(self) -> int:
    """Return how many trainings a method has, if none diverges."""
    number = len(next(iter(self.candidates.values())))
    more = {*self.seeds} - {*self.tuning_seeds}
    return number * len(self.tuning_seeds) + len(more)


Load = Callable[..., Form]  # of a name, seeds and methods


def make_form(**fields: Any) -> Form:
  """Return the form; refuse one whose methods cannot be compared."""
  form = Form(**fields)
  baselines = one_of(form.methods, 'a method of this comparison')
  for name in form.baselines:
    baselines.check('--baseline', name)
  wrong = [
    (
      len(form.seeds) < 2,
      *('--seeds', form.seeds, 'two or more, as --seeds=3 or --seeds=3:6'),
      'one seed says nothing about others, and names no best method',
    ),
    (
      len({*form.methods}) < max(2, len(form.methods)),
      *('--methods', form.methods, 'two or more, each once'),
      'a method that is compared with itself',
    ),
    (
      len({len(own) for own in form.candidates.values()}) > 1,
      *('--random', form.candidates, 'as many settings for each method'),
      'a range of few whole numbers',
    ),
  ]
  for is_wrong, name, got, expected, cause in wrong:
    if is_wrong:
      raise bad_input(name, got=got, expected=expected, cause=cause)
  return form


def check(form: Form) -> None:
  """Refuse what could not be trained or chosen, before the first training."""
  for partition, method in form.units():
    views = views_of(form, method, partition)
    for candidate in form.candidates[method]:
      args = form, method, partition, candidate, form.seeds[0]
      settings = settings_of(*args, views)
    if not settings.data.validation_fraction:
      raise bad_input(
        'validation_fraction',
        got=0,
        expected='a share of the training examples that is kept for choosing',
        choices=['--config.validation_fraction=0.2'],
        cause='the field was forgotten; the tests choose nothing',
      )
    if settings.dp:  # of a method that a clip breaks
      load_blank(outline(settings))


def settings_of(
  form: Form,
  method: str,
  partition: str,
  candidate: Fields,
  seed: int,
  views: Sequence[str] = (),
) -> Settings:
  """Return the settings of one training; `views` are those of `views_of`."""
  own = dict(form.own.get(partition, {}).get(method, {}))
  fields = {**form.base}
  if 'partition' not in own:
    fields |= form.partitions[partition]
  fields |= own
  fields['finetune'] = dict(fields.get('finetune', {}))
  hp = dict(fields.pop('hp', {}))
  for name, value in candidate.items():
    names = (name,)
    if name == 'learning_rate':
      names = form.rate_fields.get(method, RATE)
    for one in names:
      if one == name or one not in candidate:
        group, _, last = one.rpartition('.')
        place = {'hp': hp, 'finetune': fields['finetune']}.get(group, fields)
        place[last] = value
  if views and 'views' not in own:
    fields['views'] = tuple(views)
  epochs = fields['finetune'].get('epochs', ())
  if views and INITIAL not in views:  # nothing has no epoch of fine-tuning
    fields['finetune']['epochs'] = tuple(one for one in epochs if one)
  return parse_config({**fields, 'algorithm': method, 'hp': hp, 'seed': seed})


def count_trainings(form: Form) -> dict[str, int]:
  """Return {partition: trainings}; those of two are counted in the first."""
  seen: set[str] = set()
  found = dict.fromkeys(form.partitions, 0)
  for partition, method in form.units():
    candidate, seed = form.candidates[method][0], form.seeds[0]
    settings = settings_of(form, method, partition, candidate, seed)
    found[partition] += form.trainings * (repr(settings) not in seen)
    seen.add(repr(settings))
  return found


def views_of(form: Form, method: str, partition: str) -> tuple[str, ...]:
  """Return the views in which a method is shown: before, then after.

  They are those that its `personalize` returns. Before personalisation is
  'initial', if the method has it; after it the method's `own_views`, else
  'finetuned', else the first of the others with its family (mix_0.0 to
  mix_1.0), or 'initial' where there is no other. Only shapes are computed.
  """
  names = sketch_of(form, method, partition).views
  others = [name for name in names if name != INITIAL] or [INITIAL]
  default = FINETUNED if FINETUNED in names else others[0]
  after = [form.own_views.get(method, default)]
  for family in families(others).values():
    if after[0] in family:
      after = family
  before = [name for name in names if name == INITIAL]
  return tuple(dict.fromkeys([*before, *after]))


def sketch_of(form: Form, method: str, partition: str) -> Outline:
  """Return the outline of any settings of a method, before its views."""
  candidate, seed = form.candidates[method][0], form.seeds[0]
  return sketch(settings_of(form, method, partition, candidate, seed))
