"""compile_for.py: what it refuses, what fits, a small round of a platform."""

import jax
import pytest
from helpers import refused
from user_commands import run

from configs import common
from experiments.accelerators import compilation, targets
from experiments.accelerators.programs import Program, make_plan

DIGITS = 'configs/digits.py:fedbabu,quick'


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
  message = refused(targets.make_where, 'tpus', '', 1)
  assert 'Choices: tpu, cuda (did you mean tpu?)' in message


def test_missing_packages_name_the_command(monkeypatch):
  monkeypatch.setitem(targets.PLATFORMS['tpu'], 'packages', ['no-such-package'])
  message = refused(targets.make_where, 'tpu', '', 1)
  assert 'tpu without no-such-package' in message
  assert 'make accelerators' in message


def test_an_unknown_topology():
  message = refused(lambda: targets.Where('cuda', 'h100:2x2x2').devices)
  assert 'Choices: h100:8, h100:2x8' in message


def test_a_program_that_does_not_fit():
  sizes = {'arguments': 3, 'results': 2, 'shared': 1, 'temporary': 4}
  memory = {name: gib * 2**30 for name, gib in sizes.items()}
  device = targets.Device('small', 8 * 2**30)
  assert compilation.too_large(device, memory) == ''
  words = compilation.too_large(device._replace(memory=7 * 2**30), memory)
  assert words.startswith('8.00 GiB, 4.00 of them arguments and results, do')


def test_an_error_of_the_compiler_is_a_part_of_the_record():
  class Refusing:
    def compile(self):
      raise jax.errors.JaxRuntimeError('UNIMPLEMENTED: a sort of f8\n at 3')

  plan = make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  program = Program('fedbabu', 'round', None, {})
  where = targets.Where('tpu', 'v5e:2x2')
  found = compilation.compile_program(program, Refusing(), where.device)
  assert found['error'] == 'UNIMPLEMENTED: a sort of f8'
  shown = compilation.lines(where, DIGITS, plan, [found])
  assert f'fedbabu round: {found["error"]}' in [*shown]
