"""Compile a config for an accelerator that is not there; print what it takes:

  python experiments/compile_for.py --platform=tpu \\
      --config=configs/fedbabu_cifar10.py
  python experiments/compile_for.py --platform=cuda --topology=h100:8 \\
      --devices=4 --config=configs/digits.py:fedbabu,quick --json
  python experiments/compile_for.py --platform=cuda \\
      --config=configs/fedbabu_cifar100.py \\
      --compare=conv_impl=lax,gemm --compare=clients_per_chunk=1,10

Every round, beginning of a stage and the last evaluation is compiled in full:
minutes for a large model. No data set is needed, and nothing is run: these are
the compiler's numbers, not measurements. The packages that
compile are those of `make accelerators`. Status 1 if a program does not compile
or fit, unless choices are compared.
"""

import json
import sys
from itertools import product

import commandline
from absl import flags

from experiments.accelerators import environment

CONFIG = flags.DEFINE_string(
  'config', None, 'a config file, e.g. configs/digits.py:fedbabu[,quick]'
)
PLATFORM = flags.DEFINE_string('platform', 'cuda', 'tpu or cuda')
TOPOLOGY = flags.DEFINE_string(
  'topology', '', 'devices, e.g. v5e:2x2 or h100:8; those two if not given'
)
DEVICES = flags.DEFINE_integer('devices', 1, 'devices that share a round', 1)
COMPARE = flags.DEFINE_multi_string(
  'compare', [], 'FIELD=VALUE,VALUE of the config, side by side'
)
PROGRAMS = flags.DEFINE_list(
  'programs', [], 'round, evaluation, begin, data; all if not given'
)
JSON = flags.DEFINE_bool('json', False, 'print one JSON object only')


def main(overrides):
  choices = list_choices(COMPARE.value)
  environment.prepare(PLATFORM.value)  # before jax is imported
  from experiments.accelerators import compilation, targets

  where = targets.make_where(PLATFORM.value, TOPOLOGY.value, DEVICES.value)
  members = {
    ', '.join(f'{field}={value}' for field, value in choice.items()): (
      commandline.read_settings(CONFIG.value, {**overrides, **choice})
    )
    for choice in choices
  }
  result = compilation.compile_all(
    where, members, PROGRAMS.value, commandline.log_progress
  )
  if JSON.value:
    print(json.dumps(compilation.as_json(where, result)))
  else:
    print(*compilation.lines(where, CONFIG.value, result), sep='\n')
  errors = [one['error'] for own in result.values() for one in own.programs]
  if any(errors) and not COMPARE.value:
    sys.exit(1)


def list_choices(compared: list[str]) -> list[dict[str, str]]:
  """Return the overrides of every combination of the values to compare."""
  variants = [commandline.variants('--compare', text) for text in compared]
  return [
    {field: value for choice in chosen for field, value in choice.items()}
    for chosen in product(*variants)
  ]


if __name__ == '__main__':
  commandline.run(main, required=['config'])
