"""The flags of bench.py, checked before anything is compiled."""

from collections.abc import Mapping, Sequence
from itertools import product

from experiments.benchmarks.bars import BARS
from experiments.benchmarks.cases import Case, standard_case
from experiments.benchmarks.measure import NO_TORCH, has_torch
from experiments.benchmarks.plain_models import PLAIN
from experiments.benchmarks.programs import WORKS
from fedjax_pfl.algorithms import available
from fedjax_pfl.core.errors import bad_input, check_known
from fedjax_pfl.models.ops.replace_layers import CONV_IMPLS
from fedjax_pfl.models.registry import MODELS

# What a flag may list; all others list whole numbers.
WORDS = {
  'model': (*MODELS, *PLAIN),
  'conv_impl': CONV_IMPLS,
  'work': WORKS,
  'methods': available(),
  'bars': BARS,
}
KNOWN = {'expected': 'a known name', 'cause': 'a typing error'}


def make_cases(options: Mapping[str, Sequence[str]]) -> list[Case]:
  """Return a case for every combination of the listed values.

  Clients, steps and batch default to those of the model's first bar.
  """
  given = {name: values_of(name, words) for name, words in options.items()}
  models = given.pop('model')
  return [
    standard_case(model)._replace(**dict(zip(given, chosen, strict=True)))
    for model in models
    for chosen in product(*given.values())
  ]


def values_of(name: str, words: Sequence[str]) -> list[str | int]:
  """Return the checked values of a flag; all of them for 'all'."""
  if not words or not all(words):
    raise bad_input(
      name,
      got=','.join(words),
      expected='one or more values',
      cause='a comma too many, or nothing behind "="',
    )
  if name not in WORDS:
    return [_number(name, word) for word in words]
  if [*words] == ['all'] and name in ('methods', 'bars'):
    return [*WORDS[name]]
  check_known(name, words, choices=WORDS[name], **KNOWN)
  return [*words]


def _number(name: str, word: str) -> str | int:
  """Return a whole number of 1 or more; 'auto' of clients_per_chunk."""
  if (name, word) == ('clients_per_chunk', 'auto'):
    return word
  if not word.isdecimal() or int(word) < 1:
    raise bad_input(
      name,
      got=word,
      expected='a whole number, 1 or more; several with commas',
      cause='a typing error',
    )
  return int(word)


def check_together(
  cases: Sequence[Case], methods: Sequence[str], with_torch: bool
) -> None:
  """Refuse what a comparison would leave out, or has no PyTorch loop."""
  if methods and (len(cases) > 1 or with_torch):
    raise bad_input(
      '--methods',
      got=f'{len(cases)} cases{", and --torch" * with_torch}',
      expected='one case, and no PyTorch',
      choices=['one command for each case'],
      cause='flags of the table of cases, which methods do not have',
    )
  if not with_torch:
    return
  if not has_torch():
    raise bad_input(
      '--torch',
      got='no module torch',
      expected='PyTorch, for a comparison',
      cause=NO_TORCH,
    )
  from experiments.benchmarks.torch_models import MODELS as THEIRS

  models = [case.model for case in cases]
  check_known('--torch, model', models, choices=THEIRS, **KNOWN)
