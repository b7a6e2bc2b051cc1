"""What grows with the registered clients: scale.csv and scale.png.

  python experiments/benchmarks/scale.py --clients=1000,10000 --out=docs/images

Rounds of configs/million.py with other numbers of clients, each in a process of
its own, with the states of clients in memory and on disk: the fastest of ROUNDS
after the first two, and the peak of its memory.
"""

import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from absl import app, flags

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

NAMES = {'fedavg': 'FedAvg', 'scaffold': 'SCAFFOLD', 'ditto': 'Ditto'}
COLOURS = {'fedavg': 'C0', 'scaffold': 'C1', 'ditto': 'C2'}
# FedAvg's clients keep nothing.
CURVES = [('fedavg', 'device')]
CURVES += [(x, y) for x in ('scaffold', 'ditto') for y in ('device', 'disk')]
ROUNDS = 200
MEGABYTE = 1e6
CLIENTS = flags.DEFINE_list('clients', '1000', 'numbers of clients')
OUT = flags.DEFINE_string('out', 'docs/images', 'the folder of both files')
ONE = flags.DEFINE_string('one', '', 'METHOD,PLACEMENT,CLIENTS of a process')


def measure(
  method: str, placement: str, number: int, run: pathlib.Path
) -> dict[str, float]:
  """Return seconds and bytes of so many clients; `run` has states on disk."""
  import jax
  import numpy as np

  from configs import million
  from fedjax_pfl.federated.placement import unshared
  from fedjax_pfl.training.build import build_experiment
  from fedjax_pfl.training.program import Program
  from fedjax_pfl.training.state import random_streams

  million.NUM_CLIENTS = number
  config = million.get_config(method)
  config.clients_placement = placement
  folder, began = pathlib.Path(config.data_dir), time.perf_counter()
  experiment = build_experiment(config.to_dict())
  build = time.perf_counter() - began
  stage, keys = experiment.stages[0], random_streams(0)
  states = experiment.placement.of_run(run)
  experiment = experiment._replace(placement=states)
  server, clients = states.begin(stage, experiment.train, keys['states'])
  clients = unshared(clients, (server, experiment.train))
  rounds = Program(experiment).rounds(0, server)
  sampler, took = experiment.sampler_of(stage), []
  for number in range(ROUNDS + 2):
    began = time.perf_counter()
    cohorts = sampler.draw(keys['cohorts'], number, 1)
    server, clients, metrics = rounds(
      {}, server, clients, cohorts, experiment.train, keys['rounds']
    )
    jax.tree.map(np.asarray, metrics)
    took.append(time.perf_counter() - began)
  if placement == 'disk':
    began = time.perf_counter()
    states.save(len(took), clients, 0, lambda clients: None)
    save = round(1000 * (time.perf_counter() - began), 1)
    files = (run / 'states').iterdir()  # less their holes
    held = sum(512 * file.stat().st_blocks for file in files)
  else:
    save = ''
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(clients))
  size = sum(file.stat().st_size for file in folder.iterdir())
  peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  sizes = {'disk': size, 'states': held, 'peak': peak}
  megabytes = {name: round(n / MEGABYTE, 1) for name, n in sizes.items()}
  seconds = min(took[2:])
  return {
    'round': round(1000 * seconds, 2),
    'checkpoint': save,
    'load': round(build, 1),
    **megabytes,
  }


def draw(rows: list[dict], path: pathlib.Path) -> None:
  """Write the figure: a round, and the memory, over the clients."""
  import matplotlib.pyplot as plt

  fig, axes = plt.subplots(1, 2, figsize=(8, 3), layout='constrained')
  for axis, name, label in zip(
    axes,
    ('round', 'peak'),
    ('ms a round', 'MB of memory, at its peak'),
    strict=True,
  ):
    for method, placement in CURVES:
      pair = {'method': method, 'placement': placement}
      curve = [row for row in rows if pair.items() <= row.items()]
      axis.plot(
        [row['clients'] for row in curve],
        [row[name] for row in curve],
        color=COLOURS[method],
        linestyle='--' if placement == 'disk' else '-',
        marker='o',
        label=NAMES[method] + ', on disk' * (placement == 'disk'),
      )
    axis.set(xscale='log', xlabel='registered clients')
    axis.set_title(label)
    axis.grid(alpha=0.3)
    axis.set_ylim(bottom=0)
  axes[0].legend()
  fig.savefig(path, dpi=150)


def main(argv: list[str]) -> None:
  from fedjax_pfl.core.atomic_files import write_csv

  if ONE.value:
    method, placement, number = ONE.value.split(',')
    with tempfile.TemporaryDirectory() as run:
      row = measure(method, placement, int(number), pathlib.Path(run))
    print(json.dumps(row))
    return
  rows, out = [], pathlib.Path(OUT.value)
  for number in CLIENTS.value:
    for method, placement in CURVES:
      command = [sys.executable, __file__]
      command.append(f'--one={method},{placement},{number}')
      done = subprocess.run(command, capture_output=True, text=True, check=True)
      given = {'method': method, 'placement': placement, 'clients': int(number)}
      rows.append(given | json.loads(done.stdout.splitlines()[-1]))
      print(rows[-1], flush=True)
  draw(rows, out / 'scale.png')
  write_csv(out / 'scale.csv', [*rows[0]], rows)


if __name__ == '__main__':
  app.run(main)
