"""Values that a setting may be given: good ones, wrong ones, and odd ones."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import hypothesis
import numpy as np
from hypothesis import strategies as st

# What a strategy would rarely find; the others are hypothesis's own.
NUMBERS = (1e-320, 1e39, 2**31, 2**63, 10**30, -1, 0, 1, 0.5, 1.0, True, 1j)
WORDS = 'auto initial finetuned full body head conv1+bn1 + /etc/passwd {0} %s'
OBJECTS = (
  *((), (1, 5), (5, 1), (0.5, 0.75), ('initial', 'initial'), [[0.5]], {1}),
  *((math.nan,), {'epochs': 1}, object(), len, int, iter(()), range(3), ...),
  *(pathlib.Path('x'), np.int64(3), np.float32(0.1), np.bool_(True), None),
  *(np.array(1), np.array([1, 2]), np.array(['a']), np.str_('fedavg')),
  *('nul\0', '\ud800', 'x' * 100_000),
)
PLAIN = st.one_of(
  st.none() | st.booleans() | st.integers(-3, 1000) | st.integers(),
  st.floats(0, 1) | st.floats() | st.text(max_size=8),
)
ODD = st.one_of(
  PLAIN,
  st.sampled_from([*NUMBERS, *WORDS.split(), *OBJECTS]),
  st.lists(PLAIN, max_size=3),
  st.lists(PLAIN, max_size=3).map(tuple),
  st.dictionaries(st.text(max_size=3), PLAIN, max_size=2),
  st.binary(max_size=3),
  st.decimals() | st.fractions() | st.dates(),
)
# As written on a command line; some are no Python, some too much of it.
WRITTEN = """ ==1 - -- ( [1, (( " 1,,2 , 1. 1e999 -1e999 nan 1_000 0x10 ٣ {[]:1}
  {{}} 1j \\ $HOME `id` initial, ('initial') """
LONG = ('9' * 5000, '(' * 3000, '[' * 200 + ']' * 200)
TEXTS = st.text(max_size=12) | st.sampled_from(
  ['', ' ', '1 ', "__import__('os').system('touch x')"]
  + [*WRITTEN.split(), *LONG]
)


def near(word: str) -> st.SearchStrategy[str]:
  """Draw the word with a mistake in it."""
  places, letters = st.integers(0, len(word)), st.sampled_from('aeiou_-. 1A')
  return st.one_of(
    st.builds(lambda at, own: word[:at] + own + word[at:], places, letters),
    places.map(lambda at: word[:at] + word[at + 1 :]),
    places.map(lambda at: word[at:] + word[:at]),
    st.sampled_from([word.upper(), f'{word} ']),
  )


def replacing(old: Any, choices: tuple[str, ...]) -> st.SearchStrategy:
  """Draw a value in the place of the old one of a field."""
  kinds = [close_to(old), close_to(old), ODD]
  if choices:
    some = st.sampled_from(choices)  # good by itself
    kinds += [some, some, some.flatmap(near)]
  return st.one_of(kinds)


def close_to(old: Any) -> st.SearchStrategy:
  """Draw a value of the kind of the old one, which may be good."""
  if isinstance(old, bool):
    return st.just(not old)
  if isinstance(old, int | float):
    changed = (old + 1, old - 1, old * 2, old / 2, old // 2, -old, 1 - old)
    return st.sampled_from([*changed, float(old)])
  if isinstance(old, tuple) and old:
    cut = (old[:1], old + old[:1], old[::-1], (), old[0], [*old])
    return st.sampled_from(cut)
  if isinstance(old, str) and old:
    return near(old)
  if isinstance(old, Mapping):
    return st.sampled_from([{}, [*old], None, {**old, 'more': 1}])
  return ODD


def draw_many(strategy: st.SearchStrategy, count: int, seed: int) -> list[Any]:
  """Return so many values of a strategy; equal ones for equal seeds."""
  drawn = []

  @hypothesis.seed(seed)
  @hypothesis.settings(
    max_examples=count,
    database=None,
    deadline=None,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  @hypothesis.given(strategy)
  def take(value):
    drawn.append(value)

  take()
  return drawn[:count]
