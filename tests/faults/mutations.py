"""Settings with mistakes: each is refused in a sentence, or it is none.

A shipped config, from one to three of its fields changed: another kind, out of
range, misspelt, left out, or good by itself and wrong beside others. What is
accepted really runs: a round of a small model. An error message is a good end
there, too: a learning rate of a billion diverges.
"""

import functools
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from small_runs import make_experiment

from configs import common
from faults import values
from faults.watch import Trial, attempt
from fedjax_pfl import algorithms
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.settings import FIELDS
from fedjax_pfl.training import build, build_data, keys
from fedjax_pfl.training.loop import train

CONFIGS = common.available()
ABSENT = '(left out)'
NAMES = [name for name in flatten(common.base().to_dict()) if name != 'hp']
STRANGE = """shard finetune finetune. finetune.epoch .shards hp hp. hp.x .
  hp.train hp.finetune shards.x finetune.epochs.x __class__ config hp.mu.x a.b.c
  Shards hp.__class__"""
# The name of a config, and pairs of a field and its value: the last one counts.
Mutation = tuple[str, list[tuple[str, Any]]]


def run(count: int, seed: int):
  """Try so many mutations, and train a fiftieth as many accepted ones."""
  ends = []
  for mutation in values.draw_many(mutations(), count, seed):
    fault = try_one(mutation).fault
    ends.append(fault and f'{fault}: {mutation}'[:800])
  yield 'settings with mistakes', ends
  drawn = values.draw_many(mutations(), 2 * count, seed + 2)
  ends = map(end_of_training, filter(runs_on_digits, drawn))
  yield 'accepted settings, trained', [*islice(ends, count // 50)]


def try_one(mutation: Mutation) -> Trial:
  """Return what came of it, up to where training would begin."""
  with images_once():
    return attempt(lambda: build.build_experiment(settings_of(mutation)))


def images_once(load=build_data.load_images, loaded={}):  # noqa: B006
  """Load, or make, the images of equal settings once for all mutations."""

  def load_once(data, quick, log):
    key = *(getattr(data, name) for name in keys.OF_IMAGES), quick
    if key not in loaded:
      loaded[key] = load(data, quick, log)
    return loaded[key]

  return mock.patch.object(build_data, 'load_images', load_once)


def runs_on_digits(mutation: Mutation) -> bool:
  """Return whether it is accepted, and quick to train."""
  if not mutation[0].startswith('digits:'):
    return False
  built = try_one(mutation).value
  return built is not None and built.settings.data.dataset == 'digits'


def end_of_training(mutation: Mutation) -> str:
  """Train for a round; return '' or what is wrong with its end."""
  settings = settings_of(mutation)
  finetune = settings['finetune']
  epochs = tuple(min(epoch, 2) for epoch in finetune['epochs'])
  shorter = {'finetune': {**finetune, 'epochs': epochs}}
  shorter |= dict(rounds=1, local_epochs=1, eval_every=1)
  shorter['debug'] = False  # clients in a Python loop take minutes
  try:
    with tempfile.TemporaryDirectory() as folder:
      train(make_experiment(**{**settings, **shorter}), Path(folder) / 'run')
  except BadInput:
    pass
  except Exception as error:
    return f'{type(error).__name__}: {error}: {mutation}'[:800]
  return ''


def settings_of(mutation: Mutation) -> dict[str, Any]:
  """Return the settings as a program makes them."""
  config, changes = mutation
  settings = common.load(config, quick=True).to_dict()
  for name, value in changes:
    *groups, last = name.split('.')
    inner = settings
    for group in groups:
      if not isinstance(inner.get(group), dict):
        inner[group] = {}
      inner = inner[group]
    inner[last] = value
    if value is ABSENT:
      del inner[last]
  return settings


@st.composite
def mutations(draw) -> Mutation:
  """Draw a mutation; ABSENT stands for a field that is left out."""
  # Digits cost the least; every config comes up all the same.
  small = [name for name in CONFIGS if name.startswith('digits:')]
  config = draw(st.sampled_from(small) | st.sampled_from(CONFIGS))
  number = draw(st.sampled_from([1, 1, 1, 2, 2, 3]))
  return config, [draw(changes_of(config)) for _ in range(number)]


@functools.cache
def changes_of(config: str) -> st.SearchStrategy:
  """Draw a field of a config and its new value."""
  settings = flatten(common.load(config, quick=True).to_dict())
  own = algorithms.load(settings['algorithm']).HParams()._asdict()
  hp = [f'hp.{name}' for name in own if name not in ('train', 'finetune')]
  old = {**{f'hp.{name}': value for name, value in own.items()}, **settings}
  fields = st.sampled_from(NAMES)
  wrong = st.sampled_from(['', *STRANGE.split()]) | fields.flatmap(values.near)
  kinds = [wrong] + 2 * [st.sampled_from(hp or NAMES)] + 12 * [fields]

  @st.composite
  def change(draw):
    name = draw(draw(st.sampled_from(kinds)))
    if draw(st.integers(0, 29)) == 29:
      return name, ABSENT
    return name, draw(values.replacing(old.get(name), choices_of(name)))

  return change()


def choices_of(name: str) -> tuple[str, ...]:
  """Return what a field may be, if that is one of several words."""
  if name == 'algorithm':
    return (*algorithms.available(),)
  choices = FIELDS[name].rule.choices if name in FIELDS else ()
  return tuple(choice for choice in choices or () if isinstance(choice, str))
