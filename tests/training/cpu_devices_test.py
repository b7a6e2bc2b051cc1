"""`devices=2` divides a CPU of two cores, and changes no more than rounding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from fedjax_pfl.runs import provenance
from fedjax_pfl.training import startup

ROOT = Path(__file__).parents[2]
CORES = provenance.num_cores()
FLAGS = '--xla_backend_optimization_level=0'  # compiles quickly


def run(folder, devices):
  command = [
    *(sys.executable, 'experiments/main.py', f'--workdir={folder}'),
    '--config=configs/digits.py:fedper,quick',
    f'--config.devices={devices}',
    *('--config.rounds=1', '--config.eval_views=()'),
    *('--config.views=initial', '--config.conv_impl=lax'),
    *('--config.num_clients=10', '--config.max_train_examples=200'),
  ]
  environ = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': FLAGS}
  return subprocess.run(
    command, cwd=ROOT, env=environ, capture_output=True, text=True
  )


@pytest.mark.skipif(CORES < 2, reason='needs two cores')
def test_two_cores_train_a_client_each(tmp_path):
  results = []
  for devices in (1, 2):
    folder = tmp_path / str(devices)
    done = run(folder, devices)
    assert done.returncode == 0, done.stderr
    assert ('2 devices (cpu)' in done.stdout) == (devices == 2)
    losses = np.load(folder / 'clients.npz')['initial/loss']
    results.append((json.loads((folder / 'result.json').read_text()), losses))
  (one, losses), (two, other) = results
  assert one['rounds'] == two['rounds']
  np.testing.assert_allclose(losses, other, rtol=1e-3)


def test_more_devices_than_cores(tmp_path):
  done = run(tmp_path / 'run', CORES + 1)
  assert done.returncode
  assert f'devices: got {CORES + 1}' in done.stderr
  assert 'on a CPU more than it has cores' in done.stderr
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('devices', 'given', 'told'),
  [
    (2, '--xla_a=1', {'jax_num_cpu_devices': 2}),
    (1, '--xla_a=1', {}),
    (4, '--xla_a=1', {}),  # more than cores: refused with the config
    (2, f'--{startup.COUNT}=3', {}),  # the user's own choice
  ],
)
def test_what_jax_is_told_on_three_cores(monkeypatch, devices, given, told):
  seen = {}
  monkeypatch.setattr(startup, 'num_cores', lambda: 3)
  monkeypatch.setattr(jax.config, 'update', seen.__setitem__)
  monkeypatch.setenv('XLA_FLAGS', given)
  startup.divide_cpu(devices)
  assert seen == told
  flags = os.environ['XLA_FLAGS'].split()
  assert flags[0] == given and len(flags) == 1 + 2 * bool(told)


LATE = """
import time
import jax, jax.numpy as jnp, numpy as np
from fedjax_pfl.training import startup

startup.divide_cpu(2)
spec = jax.P('device')


def late(x):
  time.sleep(70)
  return np.asarray(x)


def shared(x):
  def on_first(x):
    return jax.pure_callback(late, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

  x = jax.lax.cond(jax.lax.axis_index('device') == 0, on_first, lambda x: x, x)
  return jax.lax.psum(x, 'device')


mesh = jax.sharding.Mesh(np.array(jax.devices()), ('device',))
sum_fn = jax.shard_map(
  shared, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
)
print(np.asarray(jax.jit(sum_fn)(jnp.arange(2.0))).sum())
"""


@pytest.mark.long
@pytest.mark.skipif(CORES < 2, reason='needs two cores')
def test_a_device_waits_longer_than_a_minute_for_another():
  """XLA would end the process: long clients, or another program on a core."""
  done = subprocess.run(
    [sys.executable, '-c', LATE],
    cwd=ROOT,
    env={**os.environ, 'JAX_PLATFORMS': 'cpu', 'XLA_FLAGS': FLAGS},
    capture_output=True,
    text=True,
  )
  assert done.stdout == '2.0\n', done.stderr
  assert 'stuck' not in done.stderr
