"""compile_for.py: what it refuses, what fits, a small round of a platform."""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from helpers import refused
from user_commands import refusal, run

from configs import common
from experiments.accelerators import compilation, targets
from experiments.accelerators.programs import Program, make_plan
from fedjax_pfl.federated.chunking import map_chunks

DIGITS = 'configs/digits.py:fedbabu,quick'
PLAN = make_plan(common.load('digits:fedbabu', quick=True).to_dict())


class Small(NamedTuple):
  """A chip with little memory."""

  memory: int

  @property
  def device(self):
    return targets.Device('small', self.memory)


def skip_without(platform):
  if missing := targets.missing_packages(platform):
    pytest.skip(f'without {", ".join(missing)}: make accelerators has them')


@pytest.mark.parametrize('platform', targets.PLATFORMS)
def test_a_small_round(platform):
  skip_without(platform)
  shown = []
  for chunk in (1, 2):
    flags = f'--config={DIGITS}', f'--config.clients_per_chunk={chunk}'
    done = run('compile_for', f'--platform={platform}', *flags)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    shown += [one.split() for one in lines if one.startswith('fedbabu round')]
  assert [one[2] for one in shown] == ['1', '2']
  assert all('yes' in one for one in shown)


def test_an_unknown_platform():
  done = run('compile_for', '--platform=tpus', f'--config={DIGITS}')
  assert 'Choices: tpu, cuda (did you mean tpu?)' in refusal(done)


def test_missing_packages_name_the_command(monkeypatch):
  monkeypatch.setitem(targets.PLATFORMS['tpu'], 'packages', ['no-such-package'])
  message = refused(targets.make_where, 'tpu', '', 1)
  assert 'tpu without no-such-package' in message
  assert 'make accelerators' in message


def test_an_unknown_topology():
  message = refused(lambda: targets.Where('cuda', 'h100:2x2x2').devices)
  assert 'Choices: h100:8, h100:2x8' in message


def compiled(chunk, memory):
  """Compile 250 clients of 4 KB, and 64 times that side by side."""

  def function(clients, data):
    def one(client):
      wide = jnp.sort(client[None] * data, axis=-1)
      return jnp.sort(wide, axis=0).sum()

    return map_chunks(one, clients, chunk)

  arguments = {
    'clients': jax.ShapeDtypeStruct((250, 1024), 'float32'),
    'data': jax.ShapeDtypeStruct((64, 1), 'float32'),
  }
  program = Program('fedbabu', 'round', function, arguments, 1, chunk, 50)
  lowered = jax.jit(function).lower(*arguments.values())
  where = Small(memory)
  return compilation.compile_program(program, lowered, where, PLAN)


def test_the_chunk_that_is_named_fits():
  first = compiled(100, 16 * 2**20)
  memory = first['memory']
  used = compilation.resident(memory) + memory['temporary']
  assert used > memory['device'] == 16 * 2**20
  assert first['error'].startswith(f'{used / 2**30:.2f} GiB, ')
  (named,) = re.findall(r'clients_per_chunk=(\d+) may', first['error'])
  assert 10 < int(named) < 100
  assert compiled(int(named), 16 * 2**20)['error'] == ''
  assert 'a smaller batch_size' in compiled(1, 2**18)['error']


def test_an_error_of_the_compiler_is_a_part_of_the_record():
  class Refusing:
    def compile(self):
      raise jax.errors.JaxRuntimeError('UNIMPLEMENTED: a sort of f8\n at 3')

  program = Program('fedbabu', 'round', None, {})
  where = targets.Where('tpu', 'v5e:2x2')
  found = compilation.compile_program(program, Refusing(), where, PLAN)
  assert found['error'] == 'UNIMPLEMENTED: a sort of f8'
  shown = compilation.lines(where, DIGITS, PLAN, [found])
  assert f'fedbabu round: {found["error"]}' in [*shown]
