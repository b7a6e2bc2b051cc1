"""What does not fit: which array, how much, and which chunk would."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from experiments.accelerators import hlo_text, memory
from experiments.accelerators.devices import DEVICES
from experiments.accelerators.programs import Program
from fedjax_pfl.federated.client_map import map_chunks

V5E = DEVICES['v5e']
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


def sentence(own, device):
  compiled = own.function.lower(*own.arguments).compile()
  used = memory.memory_of(compiled)
  module = hlo_text.parse(compiled.as_text())
  return memory.too_much(used, module, own, device), used


def test_of_a_gpu_jax_uses_three_quarters():
  described = Path(memory.__file__).with_name('h100.txtpb').read_text()
  reported = re.search(r'device_memory_size: (\d+)', described)
  assert DEVICES['h100'].memory == int(0.75 * int(reported[1]))


def test_a_program_that_fits():
  assert sentence(program(), V5E)[0] == ''


def test_the_largest_array_is_computed():
  small = V5E._replace(memory=3 * 2**20)
  text, used = sentence(program(), small)
  assert used.total > small.memory
  assert text.startswith('memory: got ')
  assert f'{used.total / 2**30:.2f} GiB for the round of fedbabu' in text
  assert 'with 100 clients side by side' in text
  assert 'f32[100,16,1024]' in text and 'at most the 0.00 GiB of a TPU' in text
  resident = used.arguments + used.results
  fits = memory.fitting_chunk(used.total, resident, 100, small)
  assert 0 < fits < 100 and f'clients_per_chunk={fits}' in text


@pytest.mark.parametrize('kind', ['round', 'evaluation'])
def test_the_chunk_that_it_names_fits(kind):
  small = V5E._replace(memory=16 * 2**20)

  def told(chunk):
    return sentence(program(250, kind, chunk, size=64), small)[0]

  (named,) = re.findall(r'clients_per_chunk=(\d+), as far as', told(100))
  assert 10 < int(named) < 100
  assert told(int(named)) == ''
  assert 'clients_per_chunk=' in told(2 * int(named))  # no mere 1


def test_the_largest_array_is_an_argument():
  own = program(kind='evaluation', chunk=1)
  text = memory.why_not(RuntimeError(EXHAUSTED), '', own, V5E)
  assert 'float32[100,1024] of the argument clients.head' in text
  assert '17.93 GiB' in text and 'at most the 15.75 GiB of a TPU v5e' in text
  assert 'a smaller batch_size' in text  # one client: no smaller chunk


def test_the_largest_array_before_the_compiler():
  own = program()
  lowered = own.function.lower(*own.arguments).as_text()
  text = memory.why_not(RuntimeError(EXHAUSTED), lowered, own, V5E)
  assert 'f32[100,16,1024] of ' in text
  assert 'clients_per_chunk=70' in text  # 0.8 of 87: 17.93 GiB for 100


def test_which_chunk_fits():
  device = V5E._replace(memory=100)
  assert memory.fitting_chunk(150, 50, 10, device) == 4
  assert memory.fitting_chunk(150, 120, 10, device) == 0


@pytest.mark.parametrize('reason', ['', 'UNIMPLEMENTED: a sort of f8'])
def test_a_program_that_cannot_be_compiled(reason):
  text = memory.why_not(RuntimeError(reason), '', program(), V5E)
  assert text.startswith('compiler: got ')
  assert (reason or 'an error without a reason') in text
  assert 'Likely cause: ' in text
