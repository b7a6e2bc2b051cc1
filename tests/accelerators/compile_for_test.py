"""compile_for.py: what it refuses, what fits, a small round of a device."""

import jax
import pytest
import simulated_devices
from helpers import BATCH, CLASSES, COHORT, refused
from user_commands import run

from experiments.accelerators import compilation
from experiments.accelerators.programs import Program

CHIP = compilation.Device('gpu', '1x1x1', 'small', 2**20, 1)
DIGITS = 'configs/digits.py:fedbabu,quick'
PROGRAM = Program('fedbabu round', None, {}, 2)


@pytest.mark.parametrize('device', ['h100', 'v5e'])
def test_a_small_round(device):
  if missing := compilation.missing_packages(device):
    pytest.skip(f'without {", ".join(missing)}: make accelerators has them')
  shown = []
  for chunk in (1, 2):
    flags = f'--config={DIGITS}', f'--config.clients_per_chunk={chunk}'
    done = run('compile_for', f'--device={device}', *flags)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    shown += [one.split() for one in lines if one.startswith('fedbabu round')]
  assert [one[2] for one in shown] == ['1', '2']
  assert all('yes' in one for one in shown)


def test_an_unknown_device(monkeypatch):
  message = refused(compilation.find_device, 'v5')
  assert 'Choices: h100, v5e, v4, v5p, v6e' in message
  monkeypatch.setitem(compilation.PACKAGES, 'gpu', 'jax')
  assert compilation.find_device('h100:8') == (compilation.DEVICES['h100'], 8)
  assert 'up to 8' in refused(compilation.find_device, 'h100:9')


def test_missing_packages_name_the_command(monkeypatch):
  monkeypatch.setitem(compilation.PACKAGES, 'tpu', 'no-such-package')
  message = refused(compilation.find_device, 'v5e')
  assert 'v5e without no-such-package' in message
  assert 'make accelerators' in message


def test_kernels_memory_and_what_does_not_fit():
  """Of a product, and a loop of sines whose fusion counts once."""

  def function(x):
    y = jax.lax.fori_loop(0, 9, lambda _, z: jax.numpy.sin(z) + z, x)
    return x @ y

  lowered = jax.jit(function).lower(jax.ShapeDtypeStruct((256, 256), 'float32'))
  cells, error = compilation.compile_program(PROGRAM, lowered, CHIP)
  assert (*cells,) == compilation.HEADS and cells['side by side'] == '2'
  assert cells['arguments'] == cells['results'] == '0.2'
  assert cells['fits'] == 'yes' and not error
  assert 2 <= int(cells['kernels']) < 9
  tight = CHIP._replace(memory=2**18)
  cells, error = compilation.compile_program(PROGRAM, lowered, tight)
  assert cells['fits'] == 'no' and error.startswith('needs 0.00 of 0.00 GiB')


HLO = """HloModule jit_f
%fused_computation (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %s = f32[8]{0} sine(%p)
}
%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %c = f32[] add(%a, %b)
}
%body (t: (s32[], f32[8])) -> (s32[], f32[8]) {
  %t = (s32[], f32[8]{0}) parameter(0)
  %fusion.1 = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused_computation
  %copy = f32[8]{0:T(8)S(1)} copy(%fusion.1)
  ROOT %r = (s32[], f32[8]{0}, /*index=2*/f32[8]{0}) tuple(%i, %copy)
}
ENTRY %main.3 (x: f32[8]) -> f32[] {
  %w = (s32[], f32[8]{0}) while(%t0), condition=%cond, body=%body
  %custom-call.1 = (f32[8]{0}, s8[16]{0}) custom-call(%g), target="__cublas"
  ROOT %reduce = f32[] reduce(%g, %zero), dimensions={0}, to_apply=%add
}
"""


def test_kernels_are_what_runs_outside_of_fusions():
  assert compilation.count_kernels(HLO) == 4


def test_what_devices_send_each_other():
  """What starts an all-gather has its arguments and its results."""
  text = """
ENTRY %main (x: f32[2]) -> pred[8] {
  %a = (f32[2]{0}, (f32[], s32[3]{0})) all-reduce(%x, %y)
  %b = (bf16[2,4]{1,0}, bf16[16,4]{1,0}) all-gather-start(%z), dimensions={0}
  %c = bf16[16,4]{1,0} all-gather-done(%b)
  %d = pred[8]{0} reduce-scatter(%w)
  %e = ((s8[16]{0}), s8[4]{0}) reduce-scatter-start(%u)
  %f = (s8[3]{0}, s8[3]{0}, u32[], u32[]) collective-permute-start(%v)
}"""
  assert compilation.collectives(text) == ([], [8 + 4 + 12, 2 * 64, 8, 16, 3])


TPU = """
%kernel.1 (p: f32[2]) -> f32[8] {
  %a.1 = f32[8]{0} all-gather(%p), frontend_attributes={chain_id="0"}
  %start = custom-call(%a.1), custom_call_target="AsyncCollectiveStart"
}
%kernel.2 (p: f32[2]) -> f32[8] {
  %a.2 = f32[8]{0} all-gather(%p), frontend_attributes={chain_id="0"}
}
%condition (s: (s32[], f32[2])) -> pred[] {
  %end = s32[]{:T(128)} constant(8)
  %i = s32[] get-tuple-element(%s), index=0
  ROOT %lt = pred[] compare(%i, %end), direction=LT
}
%body (s: (s32[], f32[2])) -> (s32[], f32[2]) {
  %two = s32[] constant(2)
  %next = s32[] add(%i, %two)
  %f.1 = fusion(%x), kind=kOutput, calls=%kernel.1
  %f.2 = fusion(%x), kind=kOutput, calls=%kernel.2
  ROOT %t = (s32[], f32[2]{0}) tuple(%next, %x)
}
ENTRY %main (x: f32[2]) -> f32[2] {
  %w = (s32[], f32[2]{0}) while(%t0), condition=%condition, body=%body
}
"""


def test_loops_and_collectives_of_a_tpu():
  """To 8 in steps of two, or to what the data say; beside two kernels."""
  assert compilation.collectives(TPU) == ([], [32] * 4)
  until = TPU.replace('constant(8)', 'parameter(1)')
  assert compilation.collectives(until) == ([32], [])


def test_collectives_of_a_step_and_of_a_round():
  """Of FedAvg, whose last kernel has its rows on four devices.

  A step sums the logits; in a round they join the update of each client.
  """
  in_step, in_round = simulated_devices.call(4, 'on_devices.collectives_of')
  assert in_step == [4 * BATCH * CLASSES]
  assert in_round.count(8 * 4) == len(COHORT)


def test_an_error_of_the_compiler_is_shown():
  class Refusing:
    def compile(self, compiler_options):
      raise jax.errors.JaxRuntimeError('UNIMPLEMENTED: a sort of f8\n at 3')

  cells, error = compilation.compile_program(PROGRAM, Refusing(), CHIP)
  assert error == 'UNIMPLEMENTED: a sort of f8' and cells['fits'] == 'no'
