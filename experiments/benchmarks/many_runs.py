"""Trainings an hour of FedAvg on the digits, as a sweep trains its seeds.

  python many_runs.py [SEEDS] [ROUNDS]

The first third of the seeds, in which all is compiled, is not counted.
"""

import sys
import tempfile
from pathlib import Path

from configs import digits
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.many_runs import train_many


def main(seeds='48', rounds='16'):
  config = digits.get_config('fedavg').to_dict()
  config |= {'rounds': int(rounds), 'devices': 1}
  experiments = [
    build_experiment({**config, 'seed': seed}) for seed in range(int(seeds))
  ]
  with tempfile.TemporaryDirectory() as folder:
    paths = [Path(folder, str(seed)) for seed in range(len(experiments))]
    train_many(experiments, paths)
    ends = sorted((path / run_dir.RESULT).stat().st_mtime for path in paths)
  first = len(ends) // 3
  rate = (len(ends) - first) / (ends[-1] - ends[first - 1])
  print(f'{3600 * rate:.0f} trainings an hour')


if __name__ == '__main__':
  main(*sys.argv[1:])
