"""Settings with mistakes: each is refused in a sentence, or it is none.

A shipped config, from one to three of its fields changed: another kind, out of
range, misspelt, left out, or good by itself and wrong beside others; in a
program, or as written on a command line. Nothing is trained.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

from configs import common
from experiments import commandline
from faults import values
from faults.outcome import Outcome, draw_many, outcome_of
from faults.watch import Trial, attempt
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.training import build, build_data

CONFIGS = common.available()
ABSENT = object()
FIELDS = [name for name in flatten(common.base().to_dict()) if name != 'hp']
STRANGE = (
  *('shard', 'finetune', 'finetune.', 'finetune.epoch', '.shards', 'hp', 'hp.'),
  *('hp.x', 'hp.train', 'hp.finetune', 'shards.x', 'finetune.epochs.x', ''),
  *('__class__', 'config', 'hp.mu.x', 'a.b.c', 'Shards', 'hp.__class__', '.'),
)
IMAGES = ('dataset', 'data_dir', 'max_train_examples', 'preprocessing', 'quick')


class Mutation(NamedTuple):
  """A config and what is changed in it."""

  config: str
  changes: tuple[tuple[str, Any], ...]  # field, value; the last one counts
  written: bool  # on a command line

  def __str__(self):
    changes = ' '.join(
      f'{name}={"(left out)" if value is ABSENT else repr(value)[:80]}'
      for name, value in self.changes
    )
    return f'{self.config} {"--" * self.written}{changes}'


def run(count: int, seed: int) -> Outcome:
  """Try so many mutations; print how many were refused, and for which field."""
  ends, refused = [], Counter()
  for mutation in draw_many(mutations(), count, seed):
    trial = try_one(mutation)
    ends.append(f'{mutation}: {trial.faults[0]}' if trial.faults else '')
    if trial.refusal:
      refused[str(trial.refusal).partition(': got ')[0]] += 1
  print(f'settings: {refused.total():,} of {len(ends):,} refused, for')
  print(f'  {", ".join(f"{name} {n}" for name, n in refused.most_common(60))}')
  return outcome_of('settings with mistakes', ends)


def try_one(mutation: Mutation) -> Trial:
  """Return what came of it, up to where training would begin."""
  with images_once():
    return attempt(lambda: build.build_experiment(settings_of(mutation)))


@contextlib.contextmanager
def images_once(loaded={}) -> Iterator[None]:  # noqa: B006 one for all
  """Load, or make, the images of equal settings once for all mutations."""
  load = build_data.load_images

  def load_once(data, quick, log):
    key = *(getattr(data, name) for name in build_data.OF_IMAGES), quick
    if key not in loaded:
      loaded[key] = load(data, quick, log)
    return loaded[key]

  build_data.load_images = load_once
  try:
    yield
  finally:
    build_data.load_images = load


def settings_of(mutation: Mutation) -> dict[str, Any]:
  """Return the settings as a program makes them, or as a command reads them."""
  if mutation.written:
    path = f'{commandline.ROOT}/configs/{quick_file(mutation.config)}'
    return commandline.read_settings(path, dict(mutation.changes))
  settings = common.load(mutation.config, quick=True).to_dict()
  for name, value in mutation.changes:
    _put(settings, name, value)
  return settings


def quick_file(config: str) -> str:
  """Return 'digits.py:fedavg,quick' for 'digits:fedavg'."""
  file, colon, argument = config.partition(':')
  return f'{file}.py:{argument}{"," if colon else ""}{common.QUICK}'


def _put(settings: dict[str, Any], name: str, value: Any) -> None:
  *groups, last = name.split('.')
  for group in groups:
    inner = settings.get(group)
    if not isinstance(inner, dict):
      inner = settings[group] = {}
    settings = inner
  if value is ABSENT:
    settings.pop(last, None)
  else:
    settings[last] = value


@st.composite
def mutations(draw, written: bool | None = None) -> Mutation:
  """Draw a mutation, of a command line or not."""
  # Digits cost the least; every config comes up all the same.
  small = [name for name in CONFIGS if name.startswith('digits:')]
  config = draw(st.sampled_from(small) | st.sampled_from(CONFIGS))
  if written is None:
    written = draw(st.booleans())
  number = draw(st.sampled_from([1, 1, 1, 2, 2, 3]))
  changes = [draw(changes_of(config, written)) for _ in range(number)]
  return Mutation(config, tuple(changes), written)


@functools.cache
def changes_of(config: str, written: bool) -> st.SearchStrategy:
  """Draw a field and its new value: the text, where it is written."""
  settings = flatten(common.load(config, quick=True).to_dict())
  own = values.hyperparameters(settings['algorithm'])
  hp = {f'hp.{name}': value for name, value in own.items()}
  old = {**hp, **settings}
  fields = st.sampled_from(FIELDS)
  wrong = st.sampled_from(STRANGE) | fields.flatmap(values.near)
  kinds = [wrong] + 2 * [st.sampled_from([*hp] or FIELDS)] + 12 * [fields]

  @st.composite
  def change(draw):
    name = draw(draw(st.sampled_from(kinds)))
    value = values.replacing(name, old.get(name))
    if written:
      text = value.map(lambda own: own if isinstance(own, str) else repr(own))
      return name, draw(text | values.TEXTS)
    is_absent = draw(st.integers(0, 29)) == 29
    return name, ABSENT if is_absent else draw(value)

  return change()
