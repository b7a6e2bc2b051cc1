"""Settings with mistakes: each is refused in a sentence, or it is none.

A shipped config, from one to three of its fields changed: another kind, out of
range, misspelt, left out, or good by itself and wrong beside others; in a
program, or as written on a command line. Nothing is trained.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from configs import common
from experiments import commandline
from faults import values
from faults.outcome import Outcome
from faults.watch import Trial, attempt
from fedjax_pfl.algorithms import available
from fedjax_pfl.data import Dataset
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.settings import flat_config
from fedjax_pfl.training import build, build_data

ROOT = Path(__file__).parents[2]
CONFIGS = common.available()
ABSENT = object()
FIELDS = [name for name in flatten(common.base().to_dict()) if name != 'hp']
STRANGE = (
  *('shard', 'finetune', 'finetune.', 'finetune.epoch', '.shards', 'hp', 'hp.'),
  *('hp.x', 'hp.train', 'hp.finetune', 'shards.x', 'finetune.epochs.x', ''),
  *('__class__', 'config', 'hp.mu.x', 'a.b.c', 'Shards', 'hp.__class__', '.'),
)


IMAGES = ('dataset', 'data_dir', 'max_train_examples', 'preprocessing', 'quick')
_LOADED: dict[tuple, Dataset] = {}


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


def draw_mutations(count: int, seed: int) -> list[Mutation]:
  """Return so many mutations; equal ones for equal seeds."""
  draw = random.Random(seed)
  return [_draw_one(draw) for _ in range(count)]


def run(count: int, seed: int) -> Outcome:
  """Try so many mutations; print how many were refused, and for which field."""
  failures, refused = [], Counter()
  for mutation in draw_mutations(count, seed):
    trial = try_one(mutation)
    failures += [f'{mutation}: {fault}' for fault in trial.faults[:1]]
    if trial.refusal:
      refused[str(trial.refusal).partition(': got ')[0]] += 1
  print(f'settings: {sum(refused.values()):,} of {count:,} refused, for')
  print(f'  {", ".join(f"{name} {n}" for name, n in refused.most_common(60))}')
  return Outcome(
    'settings with mistakes', count, count - len(failures), tuple(failures)
  )


def try_one(mutation: Mutation) -> Trial:
  """Return what came of it, up to where training would begin."""
  with images_once():
    return attempt(lambda: build.build_experiment(settings_of(mutation)))


@contextlib.contextmanager
def images_once() -> Iterator[None]:
  """Load, or make, the images of equal settings once for all mutations."""
  load = build_data.load_images

  def load_once(settings, log):
    config = flat_config(settings)
    key = tuple(config[name] for name in IMAGES)
    if key not in _LOADED:
      _LOADED[key] = load(settings, log)
    return _LOADED[key]

  build_data.load_images = load_once
  try:
    yield
  finally:
    build_data.load_images = load


def settings_of(mutation: Mutation) -> dict[str, Any]:
  """Return the settings as a program makes them, or as a command reads them."""
  if mutation.written:
    path = f'{ROOT}/configs/{quick_file(mutation.config)}'
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


def _draw_one(draw: random.Random) -> Mutation:
  # Digits cost the least; every config comes up all the same.
  small = [name for name in CONFIGS if name.startswith('digits:')]
  config = draw.choice(small if draw.random() < 0.7 else CONFIGS)
  settings = flatten(common.load(config, quick=True).to_dict())
  written = draw.random() < 0.4
  number = draw.choice([1, 1, 1, 2, 2, 3])
  changes = [_draw_change(settings, written, draw) for _ in range(number)]
  return Mutation(config, tuple(changes), written)


def _draw_change(
  settings: Mapping[str, Any], written: bool, draw: random.Random
) -> tuple[str, Any]:
  """Return a field and its new value: the text, where it is written."""
  hp = {
    f'hp.{name}': value
    for name, value in values.hyperparameters(settings['algorithm']).items()
  }
  kind = draw.random()
  if kind < 0.06:
    name = draw.choice([*STRANGE, values.near(draw.choice(FIELDS), draw)])
  else:
    name = draw.choice([*hp] if hp and kind < 0.2 else FIELDS)
  if kind > 0.97 and not written:
    return name, ABSENT
  old = settings.get(name, hp.get(name))
  value = _draw_value(name, old, draw)
  if not written:
    return name, value
  if draw.random() < 0.3:
    return name, draw.choice(values.TEXTS)
  return name, value if isinstance(value, str) else repr(value)


def _draw_value(name: str, old: Any, draw: random.Random) -> Any:
  kind = draw.random()
  words = values.known_words(name)
  if name == 'algorithm':
    words = available()
  if kind < 0.25 and words:
    return draw.choice(words)  # good by itself
  if kind < 0.35 and words:
    return values.near(draw.choice(words), draw)
  if kind < 0.5:
    return values.close_to(old, draw)
  if kind < 0.7:
    return draw.choice(values.NUMBERS)
  if kind < 0.8:
    return draw.choice(values.LISTS)
  return draw.choice(values.EVERYTHING)
