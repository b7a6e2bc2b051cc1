"""Begin a run on a mesh; print where its states lie, and where programs do.

  XLA_FLAGS=--xla_force_host_platform_device_count=3 \\
      PYTHONPATH=.:tests/support python tests/accelerators/on_a_mesh.py
"""

import json

import jax
import small_runs

from experiments.accelerators import programs
from fedjax_pfl.federated.placement import on_devices
from fedjax_pfl.training.build import build_experiment


def main():
  # 10 clients on 3 devices: the last one owns two and a copy.
  config = small_runs.make_settings(algorithm='fedper')
  experiment = build_experiment(config)
  begun = on_devices(0).begin(
    experiment.stages[0], experiment.train, jax.random.key(0)
  )
  made = programs.make_programs(programs.make_plan(config), jax.devices())
  arguments = next(made).arguments
  found = {
    'run': [rows(tree) for tree in begun],
    'program': [rows(arguments[name]) for name in ('server', 'clients')],
  }
  print(json.dumps(found))


def rows(tree):
  """Return (rows in all, rows on a device) of all arrays."""
  return [
    (leaf.shape[0], leaf.sharding.shard_shape(leaf.shape)[0])
    for leaf in jax.tree.leaves(tree)
    if leaf.ndim
  ]


if __name__ == '__main__':
  main()
