"""Lower every program of some configs for a platform.

Called by simulated_devices.py: what is traced for a platform stays in jax's
caches. No plugin is needed, since nothing is compiled.
"""

import jax

from configs import common
from experiments.accelerators.programs import make_plan, make_programs
from fedjax_pfl.core.target import compiling_for


def convolutions(platform, *names):
  """Return {config and program: the number of its convolutions}."""
  lowered = {}
  for name in names:
    config = common.load(name, quick=True).to_dict()
    with compiling_for({'cuda': 'gpu'}.get(platform, platform)):
      for program in make_programs(make_plan(config), jax.devices()[:1]):
        traced = jax.jit(program.function).trace(*program.arguments.values())
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        lowered[f'{name} {program.name}'] = text.count('stablehlo.convolution')
  return lowered
