"""What grows with the registered clients: scale.csv and scale.png.

  python experiments/benchmarks/scale.py --clients=1000,10000 --out=docs/images

Rounds of configs/million.py with other numbers of clients, each in a process of
its own: the fastest of ROUNDS after the first two, and the peak of its memory.
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
ROUNDS = 200
MEGABYTE = 1e6
CLIENTS = flags.DEFINE_list('clients', '1000', 'numbers of clients')
OUT = flags.DEFINE_string('out', 'docs/images', 'the folder of both files')
ONE = flags.DEFINE_string('one', '', 'METHOD,CLIENTS of this process alone')


def measure(method: str, number: int, run: str) -> dict[str, float]:
  """Return seconds and bytes of so many clients, whose states are in `run`."""
  import jax
  import numpy as np

  from configs import million
  from fedjax_pfl.training.build import build_experiment
  from fedjax_pfl.training.program import Program
  from fedjax_pfl.training.state import random_streams

  million.NUM_CLIENTS = number
  config = million.get_config(method)
  folder, began = pathlib.Path(config.data_dir), time.perf_counter()
  experiment = build_experiment(config.to_dict())
  build = time.perf_counter() - began
  stage, keys = experiment.stages[0], random_streams(0)
  placement = experiment.placement.of_run(pathlib.Path(run))
  experiment = experiment._replace(placement=placement)
  server, clients = placement.begin(stage, experiment.train, keys['states'])
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
  began = time.perf_counter()
  placement.save(len(took), clients, 0, lambda clients: None)
  save = time.perf_counter() - began
  files = [*pathlib.Path(run, 'states').iterdir()]
  held = sum(512 * file.stat().st_blocks for file in files)
  size = sum(file.stat().st_size for file in folder.iterdir())
  peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  sizes = {'disk': size, 'states': held, 'peak': peak}
  megabytes = {name: round(n / MEGABYTE, 1) for name, n in sizes.items()}
  seconds = min(took[2:])
  return {
    'round': round(1000 * seconds, 2),
    'checkpoint': round(1000 * save, 1),
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
    for method in NAMES:
      own = [row for row in rows if row['method'] == method]
      x = [row['clients'] for row in own]
      axis.plot(x, [row[name] for row in own], marker='o', label=NAMES[method])
    axis.set(xscale='log', xlabel='registered clients')
    axis.set_title(label)
    axis.grid(alpha=0.3)
    axis.set_ylim(bottom=0)
  axes[0].legend()
  fig.savefig(path, dpi=150)


def main(argv: list[str]) -> None:
  from fedjax_pfl.core.atomic_files import write_csv

  if ONE.value:
    method, number = ONE.value.split(',')
    with tempfile.TemporaryDirectory() as run:
      print(json.dumps(measure(method, int(number), run)))
    return
  rows, out = [], pathlib.Path(OUT.value)
  for number in CLIENTS.value:
    for method in NAMES:
      words = [sys.executable, __file__, f'--one={method},{number}']
      done = subprocess.run(words, capture_output=True, text=True, check=True)
      row = json.loads(done.stdout.splitlines()[-1])
      rows.append({'method': method, 'clients': int(number), **row})
      print(rows[-1], flush=True)
  draw(rows, out / 'scale.png')
  write_csv(out / 'scale.csv', [*rows[0]], rows)


if __name__ == '__main__':
  app.run(main)
