"""Programs that do not fit: which array, how much, and which chunk would."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from experiments.accelerators import compilation, targets, too_large
from experiments.accelerators.programs import Program
from fedjax_pfl.federated.client_map import map_chunks

V5E = targets.DEVICES['tpu']['v5e']
# As libtpu 0.0.42 writes it.
EXHAUSTED = (
  'RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for '
  'HLO temporaries (17.93G) exceeds available HBM (15.75G).'
)


def program(clients=100, kind='round', chunk=100, size=16):
  """Return a program with 4 KB a client, and `size` times that side by side."""

  def function(clients, data):
    def one(client):
      wide = jnp.sort(client[None] * data, axis=-1)
      return jnp.sort(wide, axis=0).sum()

    return map_chunks(one, clients, chunk)

  arguments = (
    {'head': jax.ShapeDtypeStruct((clients, 1024), 'float32')},
    jax.ShapeDtypeStruct((size, 1), 'float32'),
  )
  return Program(
    *('fedbabu', kind, jax.jit(lambda c, d: function(c['head'], d))),
    *(arguments, ('clients', 'data'), 1, chunk, 50),
  )


def compiled(own, memory):
  traced = own.function.trace(*own.arguments)
  device = V5E._replace(memory=memory)
  return compilation.compile_program(own, traced, device, 'float32')


def why_not(own, reason):
  traced = own.function.trace(*own.arguments)
  return too_large.why_not(RuntimeError(reason), traced.jaxpr, own, V5E)


def test_of_a_gpu_jax_uses_three_quarters():
  described = Path(targets.__file__).with_name('h100.txtpb').read_text()
  reported = re.search(r'device_memory_size: (\d+)', described)
  assert targets.DEVICES['cuda']['h100'].memory == int(0.75 * int(reported[1]))


@pytest.mark.parametrize('kind', ['round', 'evaluation'])
def test_the_chunk_that_it_names_fits(kind):
  def told(chunk):
    return compiled(program(250, kind, chunk, size=64), 16 * 2**20)

  first = told(100)
  assert first.memory.total > first.device.memory
  assert first.error.startswith('memory: got ')
  used = f'{first.memory.total / 2**30:.2f} GiB for the {kind} of fedbabu'
  assert used in first.error and '100 clients side by side' in first.error
  assert 'float32[100,64,1024] of ' in first.error
  assert 'at most the 0.02 GiB of a TPU' in first.error
  (named,) = re.findall(r'clients_per_chunk=(\d+), as far as', first.error)
  assert 10 < int(named) < 100
  assert told(int(named)).error == ''
  assert 'clients_per_chunk=' in told(2 * int(named)).error  # no mere 1


def test_the_largest_array_is_an_argument():
  text = why_not(program(kind='evaluation', chunk=1), EXHAUSTED)
  assert 'float32[100,1024] of the argument clients.head' in text
  assert '17.93 GiB' in text and 'at most the 15.75 GiB of a TPU v5e' in text
  assert 'a smaller batch_size' in text  # one client: no smaller chunk


def test_the_largest_array_is_computed():
  text = why_not(program(), EXHAUSTED)
  assert 'float32[100,16,1024] of ' in text
  assert 'clients_per_chunk=70' in text  # 0.8 of 87: 17.93 GiB for 100


def test_which_chunk_fits():
  device = V5E._replace(memory=100)
  assert too_large.fitting_chunk(150, 50, 10, device) == 4
  assert too_large.fitting_chunk(150, 120, 10, device) == 0


@pytest.mark.parametrize('reason', ['', 'UNIMPLEMENTED: a sort of f8'])
def test_a_program_that_cannot_be_compiled(reason):
  text = why_not(program(), reason)
  assert text.startswith('compiler: got ')
  assert (reason or 'an error without a reason') in text
  assert 'Likely cause: ' in text
