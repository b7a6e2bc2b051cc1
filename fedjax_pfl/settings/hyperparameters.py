"""The hyperparameters of a method, checked as its record declares them."""

import inspect
import math
import types
import typing
from collections.abc import Callable
from typing import Any

from fedjax_pfl import algorithms
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.norm_stats import FROZEN, NORM_STATISTICS
from fedjax_pfl.core.records import check_size
from fedjax_pfl.core.rules import Rule, is_int, one_of
from fedjax_pfl.core.user_code import UserCode, is_code, name_of
from fedjax_pfl.settings.schema import Settings

# Hyperparameters that are records of other fields of the config.
SHARED = 'train', 'finetune'
MOST = 1_000_000  # epochs, steps, clusters: more would never end
UNIONS = types.UnionType, typing.Union
# What papers and PFLlib call one thing: a method has one name of a row.
SYNONYMS = (
  ('lam', 'mu', 'gamma', 'kappa', 'lamda', 'lambda', 'kl_weight'),
  ('temperature', 'tau'),
  ('inner_steps', 'K'),
  ('inner_lr', 'p_learning_rate'),
  ('personal_epochs', 'head_epochs', 'plocal_epochs'),
  ('models', 'M'),
  ('alpha', 'alphaK'),
)
SMALL = Rule(
  lambda value: not is_int(value) or abs(value) <= MOST,
  f'a whole number up to {MOST}',
)


def own_defaults(method: str) -> dict[str, Any]:
  """Return the hyperparameters of a method that are no records, by name."""
  record = algorithms.load(method).HParams
  names, hp = inspect.signature(record).parameters, record()
  return {name: getattr(hp, name) for name in names if name not in SHARED}


def effective(settings: Settings) -> dict[str, Any]:
  """Return the own hyperparameters of a method: defaults, then the config's.

  As JSON holds them; of what it does not, as a function that is a default in a
  method of the user's own, the name.
  """

  def stored(value):
    try:
      return atomic_files.plain(value)
    except TypeError:
      return name_of(value)

  hp = {**own_defaults(settings.algorithm), **settings.hp}
  return {name: stored(value) for name, value in hp.items()}


def check_method(settings: Settings) -> None:
  """Refuse what the method has not got, and values of another kind.

  Of a method of the user's own once it is loaded: a stored config only names
  its file.
  """
  method, kind = settings.algorithm, settings.model.norm_statistics
  if is_code(method) and not isinstance(method, UserCode):
    return
  module = settings.method
  if kind not in ('batch', FROZEN):  # frozen ones are the same everywhere
    one_of(
      getattr(module, 'NORM_STATISTICS', NORM_STATISTICS),
      f'statistics of BatchNorm that {method} can keep',
    ).check('norm_statistics', kind)
  if not settings.hp:
    return
  hints, defaults = typing.get_type_hints(module.HParams), own_defaults(method)
  for name, value in settings.hp.items():
    meant = [own for row in SYNONYMS if name in row for own in row]
    meant = [f'hp.{own} is meant' for own in meant if own in defaults]
    expected = f'a hyperparameter of {method}'
    one_of(defaults, expected, ''.join(meant[:1])).check('hp', name)
    Rule(
      lambda value, hint=hints[name]: _fits(value, hint),
      f'a value of the kind of its default, {defaults[name]!r}',
      choices=[_words(hints[name])],
    ).check(f'hp.{name}', value)
    check_size(f'hp.{name}', value)
    SMALL.check(f'hp.{name}', value)


def _words(hint: Any) -> str:
  """Return what an annotation allows: 'float | None'."""
  inner = typing.get_args(hint) if typing.get_origin(hint) in UNIONS else [hint]
  return ' | '.join(
    kind.__name__.removesuffix('Type') if isinstance(kind, type) else str(kind)
    for kind in inner
    if typing.get_origin(kind) is not Callable  # which no config can hold
  )


def _fits(value: Any, hint: Any) -> bool:
  """Return whether the value is what an annotation says.

  A whole number may stand for a float; True may stand for no number, and
  neither may infinity or NaN.
  """
  inner, origin = typing.get_args(hint), typing.get_origin(hint)
  if origin is tuple:
    is_list = isinstance(value, tuple | list)
    return is_list and all(_fits(item, inner[0]) for item in value)
  if origin in UNIONS:
    return any(_fits(value, kind) for kind in inner)
  if hint is float and type(value) is float:
    return math.isfinite(value)
  return type(value) is (int if hint is float else hint)
