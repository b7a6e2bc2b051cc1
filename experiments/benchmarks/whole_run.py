"""A whole run in a process of its own: its time, and its memory.

  python experiments/benchmarks/whole_run.py CONFIG --config.rounds=5 ...

Prints the seconds from the settings to the result, how many of them XLA
compiled, and the forecast of the memory beside the most that the allocator of
the device gave (a CPU does not tell).
"""

import sys
import tempfile
import time
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

import commandline

from fedjax_pfl.core import progress
from fedjax_pfl.training import compile_cache, memory_estimate
from fedjax_pfl.training.build import build_experiment
from fedjax_pfl.training.loop import train

MIB = 2**20

config, *flags = sys.argv[1:]
fields = dict(flag.removeprefix('--config.').split('=', 1) for flag in flags)
settings = commandline.read_settings(config, fields)
compile_cache.cache_programs(print)
began = time.perf_counter()
experiment = build_experiment(settings)
with tempfile.TemporaryDirectory() as workdir:
  train(experiment, workdir)
took, compiled = time.perf_counter() - began, progress.compiled_seconds()
used = (jax.local_devices()[0].memory_stats() or {}).get('peak_bytes_in_use')
forecast = max(x.peak for _, x in memory_estimate.forecasts(experiment))
of_device = f', used {used / MIB:.0f}' if used else ''
print(f'forecast {forecast / MIB:.0f} MiB{of_device}')
print(f'{took:.2f} s, compiling {compiled:.2f}, the rest {took - compiled:.2f}')
