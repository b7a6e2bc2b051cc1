"""compile_for.py: what it refuses, what fits, a small round of a platform."""

import json
import re
from pathlib import Path

import compile_for
import jax
import jax.numpy as jnp
import pytest
from helpers import refused
from user_commands import refusal, run

from configs import common
from experiments.accelerators import compilation, plan, report, targets
from experiments.accelerators.programs import Program
from fedjax_pfl.federated.client_map import map_chunks

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
  assert compile_for.list_choices([]) == [{}]


@pytest.mark.parametrize(
  ('flags', 'part'),
  [
    (['--platform=tpus'], 'Choices: tpu, cuda (did you mean tpu?)'),
    (['--compare=conv_impl='], '--compare: got'),
  ],
)
def test_bad_flags(flags, part):
  done = run('compile_for', *flags, f'--config={DIGITS}')
  assert part in refusal(done)


def test_missing_packages_name_the_command(monkeypatch):
  monkeypatch.setitem(targets.PLATFORMS['tpu'], 'packages', ['no-such-package'])
  message = refused(targets.make_where, 'tpu', '', 1)
  assert 'tpu without no-such-package' in message
  assert 'make accelerators' in message


@pytest.mark.parametrize(
  ('platform', 'topologies'),
  [
    ('tpu', ['v5e', 'v9e:2x2', 'h100:8']),
    ('cuda', ['v5e:2x2', 'h100:2x2x2', 'a100:8']),
  ],
)
def test_an_unknown_topology(platform, topologies):
  for topology in topologies:
    message = refused(lambda own=topology: targets.Where(platform, own).devices)
    assert all(
      one in message for one in targets.PLATFORMS[platform]['topologies']
    )


def test_arrangements_that_are_not_built():
  skip_without('tpu')
  refused(lambda: targets.Where('tpu', 'v5e:3x3').devices)
  message = refused(lambda: targets.Where('tpu', 'v5e:2x2', 5).devices)
  assert '1 to the 4 of v5e:2x2' in message


class OnThisMachine(targets.Where):
  """The CPU in the place of a TPU."""

  @property
  def devices(self):
    return jax.devices()[:1]


def test_programs_that_are_not_there():
  here = OnThisMachine('tpu', 'v5e:2x2')
  configs = {'': common.load('digits:fedbabu', quick=True).to_dict()}
  for kind, part in (('rounds', 'round, evaluation'), ('data', "got 'data'")):
    message = refused(report.compile_all, here, configs, [kind], print)
    assert part in message


# ---- what fits


def test_of_a_gpu_jax_uses_three_quarters():
  described = Path(targets.__file__).with_name('h100.txtpb').read_text()
  reported = re.search(r'device_memory_size: (\d+)', described)
  memory = targets.Where('cuda', 'h100:8').device.memory
  assert memory == int(0.75 * int(reported[1]))


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
  assert 'do not fit the 0.02 of a TPU v5e' in first['error']
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
  assert not found['compiles'] and found['memory'] is None
  planned = plan.make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  result = {'': report.Member(planned, (found,))}
  shown = [*report.lines(targets.Where('tpu', 'v5e:2x2'), DIGITS, result)]
  assert f'fedbabu round: {found["error"]}' in shown
