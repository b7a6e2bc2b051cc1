"""A form: what a comparison trains, and the settings of each training."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedjax_pfl.around.attacks import BACKDOORS
from fedjax_pfl.compare.plan import Planned, with_seeds
from fedjax_pfl.core.errors import refuse
from fedjax_pfl.core.example_losses import CROSS_ENTROPY
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.evaluation.choices import FINETUNED, families
from fedjax_pfl.evaluation.measures import (
  MEASURES,
  Measure,
  main_of,
  measure_of,
)
from fedjax_pfl.evaluation.own_metrics import chooser, measures_of
from fedjax_pfl.results.runs.entry import METHOD, REFERENCE
from fedjax_pfl.results.runs.run import INITIAL
from fedjax_pfl.settings import Settings, parse_config
from fedjax_pfl.training.outline import Outline, sketch

# What a candidate's learning_rate replaces: fine-tuning has the same one.
RATE = ('learning_rate', 'finetune.learning_rate')
FACTORS = (0.3, 0.1, 0.03)  # of it, among which validation chooses
# Of every run: the last round alone is evaluated, and counts.
LAST_ROUND = {'eval_views': (), 'eval_every': 1_000_000, 'select': 'last'}
LAST_ROUND |= {'tune_by': 'accuracy'}  # of the round
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
  tune_by: str = 'accuracy'  # the measure that chooses, and is compared

  def units(self) -> Iterator['Unit']:
    """Yield everything that is tuned and trained."""
    for partition in self.partitions:
      for method in self.methods:
        yield Unit(self, partition, method)

  def only(self, partition: str) -> 'Form':
    """Return the form of one of its partitions."""
    known = one_of([*self.partitions], f'a partition of the form {self.name}')
    known.check('partition', partition)
    return self._replace(partitions={partition: self.partitions[partition]})

  @property
  def measures(self) -> list[Measure]:
    """Return what is tuned by, then the main number, and other metrics."""
    metrics = self.base.get('metrics', ())
    others = [x for x in MEASURES if x.compared and x.of_client]
    has_backdoor = self.base.get('attack') in BACKDOORS
    others += [measure_of('backdoor')] * has_backdoor
    loss = self.base.get('loss', CROSS_ENTROPY)
    every = [chooser(self.tune_by, metrics, loss), main_of(loss), *others]
    return [*dict.fromkeys([*every, *measures_of(metrics)])]

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
  loss = form.base.get('loss', CROSS_ENTROPY)
  chooser(form.tune_by, form.base.get('metrics', ()), loss)
  sizes = {*map(len, form.candidates.values())}
  few = 'as many settings for each method: of few whole numbers there are fewer'
  is_twice = len({*form.methods}) < max(2, len(form.methods))
  refuse(
    (len(form.seeds) < 2, '--seeds', form.seeds, 'two or more, as --seeds=3'),
    (is_twice, '--methods', form.methods, 'two or more, each once'),
    (len(sizes) > 1, '--random', form.candidates, few),
  )
  return form


class Unit(NamedTuple):
  """A method in a partition of a form: it is tuned, then trained."""

  form: Form
  partition: str
  method: str

  @property
  def candidates(self) -> tuple[Fields, ...]:
    return self.form.candidates[self.method]

  @property
  def differing(self) -> dict[str, Any]:
    """Return the fields in which the method differs from the form."""
    of_partition = self.form.own.get(self.partition, {})
    return dict(of_partition.get(self.method, {}))

  @property
  def kind(self) -> str:
    """Return whether it has the clients of the form, or its own number."""
    fields = {**self.form.base, **self.form.partitions[self.partition]}
    clients = fields['num_clients']
    is_method = self.differing.get('num_clients', clients) == clients
    return METHOD if is_method else REFERENCE

  @property
  def outline(self) -> Outline:
    """Return the outline of any of its settings."""
    return sketch(self.settings(self.candidates[0], self.form.seeds[0]))

  @property
  def views(self) -> tuple[str, ...]:
    """Return the views in which it is shown: before, then after.

    They are those that its `personalize` returns. Before personalisation is
    'initial', if the method has it; after it the method's `own_views`, else
    'finetuned' by all rates, else the first of the others with its family
    (mix_0.0 to mix_1.0), or 'initial' where there is no other. Only shapes are
    computed.
    """
    names = self.outline.views
    others = [name for name in names if name != INITIAL] or [INITIAL]
    default = FINETUNED if FINETUNED in names else others[0]
    after = [self.form.own_views.get(self.method, default)]
    if after == [FINETUNED]:  # by other rates, too
      after += [name for name in names if name.startswith(f'{FINETUNED}_x')]
    for family in families(others).values():
      if after[0] in family:
        after = family
    before = [name for name in names if name == INITIAL]
    return tuple(dict.fromkeys([*before, *after]))

  def plan(
    self, candidates: Iterable[Fields], seeds: Sequence[int]
  ) -> list[Planned]:
    """Return the trainings of these candidates with these seeds."""
    labels = {'partition': self.partition, 'method': self.method}
    views = self.views
    return [
      Planned(self.settings(fields, seed, views), {**labels, 'fields': fields})
      for fields in candidates
      for seed in seeds
    ]

  def settings(
    self, candidate: Fields, seed: int, views: Sequence[str] = ()
  ) -> Settings:
    """Return the settings of one training; `views` are those above."""
    fields, differing = {**self.form.base}, self.differing
    if 'partition' not in differing:
      fields |= self.form.partitions[self.partition]
    fields |= differing
    fields['finetune'] = dict(fields.get('finetune', {}))
    hp = dict(fields.pop('hp', {}))
    groups = {'': fields, 'hp': hp, 'finetune': fields['finetune']}
    for name, value in candidate.items():
      names = (name,)
      if name == 'learning_rate':
        names = self.form.rate_fields.get(self.method, RATE)
      for field in names:
        if field == name or field not in candidate:
          group, _, last = field.rpartition('.')
          groups.get(group, fields)[last] = value
    if views and 'views' not in differing:
      fields['views'] = tuple(views)
    epochs = fields['finetune'].get('epochs', ())
    if views and INITIAL not in views:  # nothing has no epoch of fine-tuning
      fields['finetune']['epochs'] = tuple(filter(None, epochs))
    named = {'algorithm': self.method, 'hp': hp, 'seed': seed}
    return parse_config({**fields, **named})


def plans_of(form: Form) -> list[list[Planned]]:
  """Return the plan of each unit, as if its first candidate were chosen."""
  plans = []
  for unit in form.units():
    plan = unit.plan(unit.candidates, form.tuning_seeds)
    more = {*form.seeds} - {*form.tuning_seeds}
    plans.append([*plan, *with_seeds(*plan[0], sorted(more))])
  return plans
