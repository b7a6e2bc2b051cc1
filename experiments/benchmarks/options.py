"""The flags of bench.py, checked before anything is compiled."""

from collections.abc import Collection, Sequence
from itertools import product
from typing import Any

from experiments.benchmarks.bars import BARS, standard_case
from experiments.benchmarks.cases import WORKS, Case
from experiments.benchmarks.measure import NO_TORCH, has_torch
from experiments.benchmarks.plain_models import PLAIN
from fedjax_pfl.algorithms import available
from fedjax_pfl.core.errors import bad_input, check_known
from fedjax_pfl.models.ops.replace_layers import CONV_IMPLS
from fedjax_pfl.models.registry import MODELS

DTYPES = ('float32', 'float64')


def make_cases(options: dict[str, Any]) -> list[Case]:
  """Return a case for every combination of the listed values.

  Clients, steps and batch default to those of the model's first bar.
  """
  given = dict(options)
  models = _words('model', given.pop('model'), (*MODELS, *PLAIN))
  _words('conv_impl', given['conv_impl'], CONV_IMPLS)
  _words('dtype', given['dtype'], DTYPES)
  for name in ('clients', 'steps', 'batch'):
    given[name] = _numbers(name, given[name])
  given['devices'] = _numbers('devices', _given('devices', given['devices']))
  for word in _given('clients_per_chunk', given['clients_per_chunk']):
    _numbers('clients_per_chunk', [word] if word != 'auto' else [])
  return [
    standard_case(model)._replace(**dict(zip(asked, choice, strict=True)))
    for model in models
    for asked in [{name: values for name, values in given.items() if values}]
    for choice in product(*asked.values())
  ]


def make_methods(words: Sequence[str]) -> list[str]:
  """Return the names of methods to compare; none for FedAvg alone."""
  names = _names('methods', words, available(), ('all',))
  return [] if names == ['fedavg'] else names


def make_bars(words: Sequence[str]) -> list[str]:
  """Return the names of bars to be measured."""
  return _names('bars', words, BARS, ('all', 'none'))


def make_works(words: Sequence[str]) -> list[str]:
  """Return the kinds of work to be timed."""
  return _words('work', words, WORKS)


def check_methods(cases: Sequence[Case], with_torch: bool) -> None:
  """Refuse what a comparison of methods would leave out."""
  if len(cases) > 1 or with_torch:
    raise bad_input(
      '--methods',
      got=f'{len(cases)} cases{", and --torch" * with_torch}',
      expected='one case, and no PyTorch',
      choices=['one command for each case'],
      cause='flags of the table of cases, which methods do not have',
    )


def check_torch(cases: Sequence[Case]) -> None:
  """Refuse a comparison for which there is no PyTorch loop."""
  if not has_torch():
    raise bad_input(
      '--torch',
      got='no module torch',
      expected='PyTorch, for a comparison',
      cause=NO_TORCH,
    )
  from experiments.benchmarks.torch_models import MODELS as THEIRS

  _words('--torch, model', [case.model for case in cases], THEIRS)
  _words('--torch, dtype', [case.dtype for case in cases], ('float32',))


def _given(name: str, words: Sequence[str]) -> Sequence[str]:
  if not words or not all(words):
    raise bad_input(
      name,
      got=','.join(words),
      expected='one or more values',
      cause='a comma too many, or nothing behind "="',
    )
  return words


def _words(
  name: str, words: Sequence[str], choices: Collection[str]
) -> list[str]:
  check_known(
    name,
    _given(name, words),
    expected='a known name',
    choices=choices,
    cause='a typing error',
  )
  return [*words]


def _names(
  name: str,
  words: Sequence[str],
  choices: Collection[str],
  alone: Sequence[str],
) -> list[str]:
  """Return the names: all of them for 'all', no one for 'none'."""
  _words(name, words, (*choices, *alone))
  if [*words] == ['all']:
    return [*choices]
  if [*words] == ['none']:
    return []
  if {*words} & {*alone}:
    raise bad_input(
      name,
      got=','.join(words),
      expected=f'names, or {" or ".join(alone)} alone',
      cause='a name beside it',
    )
  return [*words]


def _numbers(name: str, words: Sequence[str]) -> list[int]:
  """Return whole numbers of 1 or more; none if none are given."""
  for word in words:
    if not word.isdecimal() or int(word) < 1:
      raise bad_input(
        name,
        got=word,
        expected='a whole number, 1 or more; several with commas',
        cause='a typing error',
      )
  return [int(word) for word in words]
