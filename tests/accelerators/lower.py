"""Lower every program of some configs for a platform; print one JSON object.

  python tests/accelerators/lower.py tpu digits:fedbabu digits:lg_fedavg

A process of its own: what is traced for a platform stays in jax's caches. No
plugin is needed, since nothing is compiled.
"""

import json
import sys

import jax

from configs import common
from experiments.accelerators.programs import make_plan, make_programs
from fedjax_pfl.core.target import compiling_for


def main(platform, *names):
  lowered = {}
  for name in names:
    config = common.load(name, quick=True).to_dict()
    with compiling_for({'cuda': 'gpu'}.get(platform, platform)):
      for program in make_programs(make_plan(config), jax.devices()[:1]):
        traced = jax.jit(program.function).trace(*program.arguments.values())
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        lowered[f'{name} {program.name}'] = text.count('stablehlo.convolution')
  print(json.dumps(lowered))


if __name__ == '__main__':
  main(*sys.argv[1:])
