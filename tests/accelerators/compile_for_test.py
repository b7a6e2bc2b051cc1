"""The command: what it refuses, and a small round on each platform."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from helpers import refused

from configs import common
from experiments import compile_for
from experiments.accelerators import plan, programs, report, screen, targets
from experiments.accelerators.compilation import Compiled
from experiments.accelerators.hlo_totals import Costs

ROOT = Path(compile_for.__file__).parents[1]
DIGITS = 'configs/digits.py:fedbabu,quick'


def run(*flags):
  return subprocess.run(
    [sys.executable, str(ROOT / 'experiments' / 'compile_for.py'), *flags],
    cwd=ROOT,
    env={**os.environ, 'PYTHONPATH': str(ROOT)},
    capture_output=True,
    text=True,
    check=False,
  )


@pytest.mark.parametrize('platform', targets.DISTRIBUTIONS)
def test_a_small_round(platform):
  if missing := targets.missing_packages(platform):
    pytest.skip(f'without {", ".join(missing)}: make accelerators has them')
  done = run(
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
  assert one['precision'] == 'float32'
  assert not one['error'] and one['memory']['arguments'] > 0
  # Twice the images, twice the products, about as many kernels.
  ratio = two['step']['flops'] / one['step']['flops']
  assert ratio == pytest.approx(2, rel=0.1)
  assert one['step']['kernels'] > 20
  assert one['run_seconds'] == 4 * one['call']['seconds'] > 0


def test_a_mesh_has_collectives():
  if missing := targets.missing_packages('cuda'):
    pytest.skip(f'without {", ".join(missing)}: make accelerators has them')
  done = run(
    *('--platform=cuda', '--devices=2', f'--config={DIGITS}'),
    *('--programs=round', '--json'),
  )
  assert done.returncode == 0, done.stderr[-2000:]
  (member,) = json.loads(done.stdout)['members']
  moved = member['programs'][0]['collectives']
  assert sum(one['number'] for one in moved.values()) > 0


def test_choices_are_combined():
  compared = ['conv_impl=lax,gemm', 'clients_per_chunk=1,10']
  assert compile_for.list_choices(compared) == [
    {'conv_impl': impl, 'clients_per_chunk': chunk}
    for impl in ('lax', 'gemm')
    for chunk in ('1', '10')
  ]
  assert compile_for.list_choices([]) == [{}]


@pytest.mark.parametrize(
  ('flags', 'parts'),
  [
    (['--platform=tpus'], ['Choices: tpu, cuda (did you mean tpu?)']),
    ([], ['no --config']),
    (['--compare=conv_impl='], ['--compare: got']),
  ],
)
def test_bad_flags(flags, parts):
  config = [] if not flags else [f'--config={DIGITS}']
  done = run(*flags, *config)
  assert done.returncode == 1 and 'Traceback' not in done.stderr
  for part in parts:
    assert part in done.stderr


def test_missing_packages_name_the_command(monkeypatch):
  monkeypatch.setitem(targets.DISTRIBUTIONS, 'tpu', ('no-such-package',))
  message = refused(targets.check_platform, 'tpu')
  assert 'tpu without no-such-package' in message
  assert 'make accelerators' in message


@pytest.mark.parametrize(
  ('platform', 'topology'),
  [
    ('tpu', 'v5e'),
    ('tpu', 'v9e:2x2'),
    ('tpu', 'h100:8'),
    ('cuda', 'v5e:2x2'),
    ('cuda', 'h100:2x2x2'),
    ('cuda', 'a100:8'),
  ],
)
def test_an_unknown_topology(platform, topology):
  message = refused(targets.devices_of, platform, topology, 1)
  for example in targets.EXAMPLES[platform]:
    assert example in message


def test_arrangements_that_are_not_built():
  if targets.missing_packages('tpu'):
    pytest.skip('without libtpu: make accelerators has it')
  refused(targets.devices_of, 'tpu', 'v5e:3x3', 1)
  assert '1 to the 4 of v5e:2x2' in refused(
    targets.devices_of, 'tpu', 'v5e:2x2', 5
  )


def test_programs_that_no_run_has():
  assert 'round, evaluation' in refused(report.check_kinds, ['rounds'])


def test_programs_that_this_run_does_not_have():
  own = plan.make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  message = refused(report.check_has, own, ['data'])
  assert "got 'data'" in message and 'Choices: round, evaluation' in message
  for kinds in ([], ['round'], ['data', 'evaluation']):
    report.check_has(own, kinds)


def test_the_kinds_of_a_run_are_those_of_its_programs():
  own = plan.make_plan(common.load('digits:fedconcat', quick=True).to_dict())
  made = {one.kind for one in programs.make_programs(own, jax.devices()[:1])}
  assert made == {*programs.kinds_of(own)}


def test_beginnings_alone_forecast_no_run():
  begin = programs.Program('a', 'begin', None, (), (), 1)
  device = targets.find('tpu', 'v5e')
  row = Compiled(begin, device, 'float32', 1.0, call=Costs(bytes=1e9))
  assert screen.run_line([row]) == ''


@pytest.mark.parametrize(
  ('seconds', 'text'),
  [
    (59.4, '59.4 s'),
    (59.99, '1 min 0 s'),
    (119.7, '2 min 0 s'),
    (3599.8, '1 h 0 min'),
    (7199, '2 h 0 min'),
  ],
)
def test_no_unit_has_60_of_the_next(seconds, text):
  assert screen.duration(seconds) == text
