"""compile_for.py: what it refuses, what fits, a small round of a platform."""

import json
import re

import compile_for
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
V5E = targets.Where('tpu', 'v5e:2x2').device


def skip_without(platform):
  if missing := targets.missing_packages(platform):
    pytest.skip(f'without {", ".join(missing)}: make accelerators has them')


@pytest.mark.parametrize('platform', targets.PLATFORMS)
def test_a_small_round(platform):
  skip_without(platform)
  done = run(
    'compile_for',
    f'--platform={platform}',
    f'--config={DIGITS}',
    '--programs=round',
    '--compare=clients_per_chunk=1,2',
    '--json',
  )
  assert done.returncode == 0, done.stderr[-2000:]
  one, two = (
    member['programs'][0] for member in json.loads(done.stdout)['members']
  )
  assert (one['images_per_step'], two['images_per_step']) == (20, 40)
  assert not one['error'] and one['memory']['arguments'] > 0
  if platform == 'tpu':  # twice the images, twice the products
    ratio = two['costs']['flops'] / one['costs']['flops']
    assert ratio == pytest.approx(2, rel=0.1)


def test_choices_are_combined():
  compared = ['conv_impl=lax,gemm', 'clients_per_chunk=1,10']
  assert compile_for.list_choices(compared) == [
    {'conv_impl': impl, 'clients_per_chunk': chunk}
    for impl in ('lax', 'gemm')
    for chunk in ('1', '10')
  ]


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
  device = V5E._replace(memory=memory)
  return compilation.compile_program(program, lowered, device, 'float32')


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
  found = compilation.compile_program(program, Refusing(), V5E, 'float32')
  assert found['error'] == 'UNIMPLEMENTED: a sort of f8'
  planned = make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  result = {'': compilation.Member(planned, (found,))}
  shown = compilation.lines(targets.Where('tpu', 'v5e:2x2'), DIGITS, result)
  assert f'fedbabu round: {found["error"]}' in [*shown]
