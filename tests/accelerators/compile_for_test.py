"""The command: what it refuses, and a small round on each platform."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import refused

from configs import common
from experiments import compile_for
from experiments.accelerators import plan, report, targets

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
  message = refused(targets.make_where, 'tpu', '', 1)
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
  message = refused(lambda: targets.Where(platform, topology).devices)
  for example in targets.EXAMPLES[platform]:
    assert example in message


def test_arrangements_that_are_not_built():
  if targets.missing_packages('tpu'):
    pytest.skip('without libtpu: make accelerators has it')
  refused(lambda: targets.Where('tpu', 'v5e:3x3').devices)
  message = refused(lambda: targets.Where('tpu', 'v5e:2x2', 5).devices)
  assert '1 to the 4 of v5e:2x2' in message


def test_programs_that_are_not_there():
  assert 'round, evaluation' in refused(report.check_kinds, ['rounds'])
  own = plan.make_plan(common.load('digits:fedbabu', quick=True).to_dict())
  message = refused(report.check_has, own, ['data'])
  assert "got 'data'" in message and 'Choices: round, evaluation' in message
  for kinds in ([], ['round'], ['data', 'evaluation']):
    report.check_has(own, kinds)
