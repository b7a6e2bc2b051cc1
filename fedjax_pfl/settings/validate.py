"""From a config to typed settings; every mistake is refused in one sentence."""

import contextlib
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

from flax.traverse_util import unflatten_dict

from fedjax_pfl.algorithms import available, own_defaults
from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input, nearest
from fedjax_pfl.core.norm_stats import AUTO, FROZEN, NORM_STATISTICS
from fedjax_pfl.core.records import check_size
from fedjax_pfl.core.rules import Rule, is_int, one_of
from fedjax_pfl.core.user_code import UserCode, is_code, name_of
from fedjax_pfl.data.datasets import OWN
from fedjax_pfl.data.fields import with_clients
from fedjax_pfl.models.registry import MODELS
from fedjax_pfl.runs import run_dir
from fedjax_pfl.settings.mistakes import check_together
from fedjax_pfl.settings.schema import FIELDS, GROUPED, SECTIONS, Settings

HP = 'hp.'
TRACED = tuple(name for name, field in FIELDS.items() if field.traced)
# Fields by the names that papers and other programs give them.
ELSEWHERE = {
  'alpha': 'dirichlet_beta',
  'frac': 'client_fraction',
  'join_ratio': 'client_fraction',
  'lr': 'learning_rate',
}
SHOWN = 3  # fields that a sentence about an unknown one names
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


def parse_config(config: Mapping[str, Any] | Settings) -> Settings:
  """Return the settings of a config; what it leaves out has its default.

  >>> settings = parse_config({'finetune': {'epochs': [1]}})
  >>> settings.data.num_clients, settings.finetune.epochs
  (100, (1,))
  """
  if isinstance(config, Settings):
    return config
  if not isinstance(config, Mapping):
    raise bad_input(
      'config',
      got=config,
      expected='a dict of settings',
      cause='a ConfigDict without .to_dict(), or the path of a config',
    )
  flat = {}
  for name, value in config.items():
    if name in GROUPED and isinstance(value, Mapping):
      flat |= {f'{name}.{field}': inner for field, inner in value.items()}
    else:
      flat[name] = value
  for name in flat:
    if name not in FIELDS:
      raise _unknown(str(name))
  flat = {name: field.default for name, field in FIELDS.items()} | flat
  flat = with_clients(flat)
  if models := FIELDS['models'].checked(flat['models']):
    flat['model'] = models[0]
  settings = from_flat(flat)
  if settings.model.norm_statistics == AUTO:
    settings = from_flat(flat | {'norm_statistics': statistics_of(settings)})
  check_together(settings, flat_config(settings))
  check_method(settings)
  return settings


def statistics_of(settings: Settings) -> str:
  """Return the statistics of BatchNorm that are the default for the data.

  'batch' for public sets, as papers have it. For a user's own, of which images
  are predicted one by one, 'running', where the method can keep them and noise
  hides them; with `init_from` those of that run.
  """
  method, model = settings.algorithm, MODELS.get(settings.model.name)
  if settings.data.dataset not in OWN or settings.dp:
    return 'batch'
  if settings.init_from:
    with contextlib.suppress(BadInput):
      stored = run_dir.load_config(settings.init_from)['config']
      return stored.get('norm_statistics', 'batch')
    return 'batch'
  is_known = not is_code(method) or isinstance(method, UserCode)
  kept = getattr(settings.method, 'NORM_STATISTICS', ()) if is_known else ()
  has_none = model is not None and model.batch_independent
  return 'batch' if has_none or (kept and 'running' not in kept) else 'running'


def _unknown(name: str) -> BadInput:
  """Return the refusal of a field that no config has: the nearest are named."""
  group = name.split('.')[0]
  inside = [field for field in FIELDS if field.startswith(f'{group}.')]
  near = [ELSEWHERE[name]] if name in ELSEWHERE else []
  near = near or nearest(name, inside or FIELDS, SHOWN) or inside[:SHOWN]
  is_own = any(name in own_defaults(method) for method in available())
  return bad_input(
    'config',
    got=name,
    expected='a field of a config, of which `fedjax-pfl settings` lists all '
    f'{len(FIELDS)}',
    choices=near or None,
    cause=f'a hyperparameter of a method, which is hp.{name}'
    if is_own or not (near or inside)
    else '',
  )


def to_config(settings: Settings) -> dict[str, Any]:
  """Return the config of these settings, which `parse_config` gives back."""
  return unflatten_dict(flat_config(settings), sep='.')


def flat_config(settings: Settings) -> dict[str, Any]:
  """Return every field by its name on a command line: 'finetune.epochs'."""
  flat = {}
  for name, field in FIELDS.items():
    part = getattr(settings, field.section) if field.section else settings
    value = getattr(part, field.attribute)
    flat[name] = dict(value) if isinstance(value, Mapping) else value
  return flat


def replace(
  settings: Settings, changes: Mapping[str, Any] | None = None, **more: Any
) -> Settings:
  """Return the settings with fields of the config changed, and checked.

  >>> replace(settings, {'finetune.epochs': (1, 5)}, seed=1)
  """
  changes = {**(changes or {}), **more}
  if not changes:
    return settings  # they were checked
  return parse_config({**flat_config(settings), **changes})


def defaults() -> dict[str, Any]:
  """Return the config in which every field has its default."""
  return to_config(Settings())


def from_flat(flat: Mapping[str, Any]) -> Settings:
  """Return the settings of all fields by name; refuse what breaks a rule."""
  sections: dict[str, dict[str, Any]] = {name: {} for name in ('', *SECTIONS)}
  for name, field in FIELDS.items():
    sections[field.section][field.attribute] = flat[name]
  of_run = sections.pop('')
  made = {name: SECTIONS[name](**given) for name, given in sections.items()}
  return Settings(**of_run, **made)


def flat_settings(settings: Settings) -> dict[str, Any]:
  """Return every field by name, hyperparameters with the method's defaults.

  >>> flat_settings(settings)['hp.mu']
  0.01
  """
  fields = flat_config(settings)
  hp = own_defaults(settings.algorithm) | fields.pop('hp')
  return fields | {f'{HP}{name}': value for name, value in hp.items()}


def key(settings: Settings, but: Collection[str] = ()) -> str:
  """Return a text that settings have in common where only `but` differ.

  >>> key(settings, but=['seed', 'hp.mu'])
  """
  fields = flat_settings(settings)
  return repr({name: fields[name] for name in fields if name not in but})


# ---- the hyperparameters of a method, as its record declares them ------------


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


# ---- numbers of a compiled program -------------------------------------------
# They change no shape and no number of steps: the fields that are `traced`
# (records.py), of the config and of the method's HParams.


def traced_names(settings: Settings) -> tuple[str, ...]:
  """Return the numbers that may be arguments of a program, by name.

  Not where it is 0 or 1, by which Python may decide, and not where each setting
  has a program of its own: in a Python loop, and with clients on the host.
  """
  system, method = settings.system, settings.method
  if system.debug or system.clients_placement != 'device':
    return ()
  fields = flat_settings(settings)
  ruled = getattr(method.HParams, 'ruled', {})
  declared = (f'{HP}{name}' for name, field in ruled.items() if field.traced)
  return tuple(
    name
    for name in (*TRACED, *declared)
    if type(fields[name]) in (int, float) and fields[name] not in (0, 1)
  )


def program_key(settings: Settings) -> str:
  """Return what runs that share a compiled program have in common."""
  return key(settings, but=('seed', *traced_names(settings)))


def with_numbers(settings: Settings, numbers: Mapping[str, Any]) -> Settings:
  """Return the settings with traced numbers, of which no rule is asked."""
  flat = {**flat_config(settings), **numbers}
  of_hp = [name for name in flat if name.startswith(HP)]
  hp = {name.removeprefix(HP): flat.pop(name) for name in of_hp}
  return from_flat({**flat, 'hp': {**settings.hp, **hp}})
