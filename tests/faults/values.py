"""Values that a setting may be given: good ones, wrong ones, and odd ones."""

import datetime
import decimal
import fractions
import math
import pathlib
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedjax_pfl import algorithms
from fedjax_pfl.settings import FIELDS

NUMBERS = (
  *(-1, 0, 1, 2, 3, 7, 10, 20, 100, 1000, 10**6, 10**9, 2**31 - 1, 2**31),
  *(2**32 - 1, 2**32, 2**63, 2**64, 10**30, -(10**30), -(2**63)),
  *(-1.0, -0.0, 0.0, 0.1, 0.5, 0.999, 1.0, 1.5, 2.0, 50.0, 1e-9, 1e-320),
  *(1e16, 1e38, 1e39, 1e308, math.inf, -math.inf, math.nan),
)
WORDS = (
  *('', ' ', 'auto', 'initial', 'finetuned', 'full', 'body', 'head', 'none'),
  *('../../x', '/etc/passwd', 'a/b', '~', '.', 'nul\0', 'h\xe4', '\ud800'),
  *('<script>', "'; DROP TABLE scores; --", '{0}', '%s', '\n', 'x' * 100_000),
  *('0.1', '5', 'None', 'True', 'conv1+bn1', '+', 'conv1+conv1', '+head'),
)
LISTS = (
  *((), (0,), (1,), (-1,), (1, 5), (5, 1), (1, 1), (0.5,), (0.5, 0.75)),
  *((1.5,), (True,), (None,), ('initial',), ('initial', 'initial'), ('',)),
  *((math.nan,), (math.inf,), (10**30,), ((1,),), [], [1], [0.5], [[0.5]]),
  *(['initial'], (2**31,), tuple(range(1, 12)), ('templates_cosine',)),
)
OBJECTS = (
  *(None, True, False, b'1', 1j, {}, {'a': 1}, {'epochs': 1}, set(), {1}),
  *(object(), len, int, ValueError('x'), iter(()), range(3), Ellipsis),
  *(pathlib.Path('x'), fractions.Fraction(1, 2), decimal.Decimal('0.1')),
  *(datetime.date(2026, 1, 1), np.int64(3), np.float32(0.1), np.float64(0.1)),
  *(np.array(1), np.array([1, 2]), np.array(['a']), np.bool_(True)),
  *(np.float64(math.nan), np.array([]), [None] * 3, np.str_('fedavg')),
)
EVERYTHING = (*NUMBERS, *WORDS, *LISTS, *OBJECTS)
# As written on a command line; some are no Python, some too much of it.
TEXTS = (
  *('', ' ', '=', '==1', '-', '--', '(', '[', '{', '((', '"', "'", '1,,2', ','),
  *('1e999', '-1e999', 'nan', 'inf', '1_000', '0x10', '٣', '1 ', ' 1', '+1'),
  *('{[]: 1}', '{{}}', '[[1]]', '[1,', '(1,)', '(0.5, 1e999)', '{1: 2}'),
  *('1j', "b'1'", '...', 'None', 'True', 'true', 'yes', '1.', '.5', '5e-1'),
  *("__import__('os').system('touch x')", 'x' * 5000, '9' * 5000, '1+1'),
  *('(' * 3000, '[' * 200 + ']' * 200, '\\', '\n', '#', '$HOME', '`id`', '*'),
  *('initial,finetuned', 'initial,', "('initial')", 'auto', '-' * 50, '∞'),
)


def near(word: str, draw: random.Random) -> str:
  """Return the word with a mistake in it."""
  place = draw.randrange(len(word) + 1)
  letter = draw.choice('aeiou_-. 1A')
  return draw.choice(
    [
      word[:place] + letter + word[place:],
      word[: place - 1] + word[place:] if place else word[1:],
      word[place:] + word[:place],
      word.upper(),
      f'{word} ',
    ]
  )


def known_words(name: str) -> tuple[str, ...]:
  """Return what a field may be, if that is one of several words."""
  choices = FIELDS[name].rule.choices if name in FIELDS else ()
  return tuple(choice for choice in choices or () if isinstance(choice, str))


def hyperparameters(method: str) -> dict[str, Any]:
  """Return the hyperparameters of a method, as they are by default."""
  fields = algorithms.load(method).HParams()._asdict()
  return {n: v for n, v in fields.items() if n not in ('train', 'finetune')}


def close_to(old: Any, draw: random.Random) -> Any:
  """Return a value of the kind of the old one, which may be good."""
  if isinstance(old, bool):
    return not old
  if isinstance(old, int):
    return draw.choice([old + 1, old - 1, old * 2, old // 2, -old, float(old)])
  if isinstance(old, float):
    return draw.choice([old / 2, old * 2, -old, old * 100, 1 - old, int(old)])
  if isinstance(old, tuple) and old:
    return draw.choice([old[:1], old + old[:1], old[::-1], (), old[0], [*old]])
  if isinstance(old, str) and old:
    return near(old, draw)
  if isinstance(old, Mapping):
    return draw.choice([{}, [*old], None, {**old, 'more': 1}])
  return draw.choice(EVERYTHING)
