"""The bench: what it counts, what it prints, and what it refuses."""

import jax
import jax.numpy as jnp
import pytest
import user_commands
from helpers import refused

from experiments import commandline
from experiments.benchmarks import measure, screen
from experiments.benchmarks.cases import Case
from experiments.benchmarks.programs import make_task
from experiments.benchmarks.screen import Bar

# ---- what is counted


def test_flops_by_hand():
  def program(x, kernel, head):
    x = jax.lax.conv_general_dilated(
      x, kernel, (2, 2), 'VALID', dimension_numbers=('NHWC', 'HWIO', 'NHWC')
    )
    rows = jax.lax.map(jax.jit(lambda row: row @ head), x)  # a scan
    return rows.sum()

  shapes = [(2, 5, 5, 3), (3, 3, 3, 7), (7, 4)]
  jaxpr = jax.make_jaxpr(program)(*map(jnp.zeros, shapes))
  pixels = 2 * 2 * 2
  by_hand = 2 * pixels * 7 * 27 + 2 * pixels * 7 * 4
  assert measure.count_flops(jaxpr.jaxpr) == by_hand
  flops = measure.GRADIENT * measure.forward_flops(measure.Case('convnet4'))
  assert flops == pytest.approx(84e6, rel=0.02)


@pytest.mark.parametrize(
  ('model', 'size'), [('fedavg_cnn', 878_538), ('pfl_cnn', 1_626_442)]
)
def test_plain_modules_have_the_published_sizes(model, size):
  task = make_task(Case(model))
  params = jax.eval_shape(task.init, jax.random.key(0))
  assert sum(leaf.size for leaf in jax.tree.leaves(params)) == size
  assert task.augment is task.normalise


# ---- what is printed


def made_up() -> measure.Measured:
  """Return what three repeats of a round came to."""
  return measure.Measured(
    case=Case('convnet4', clients=10, steps=4),
    seconds=[2.0, 1.0, 4.0],
    product_seconds=[0.2, 0.1, 0.4],
    torch_seconds={
      'eager, one process': [9.0] * 3,
      'eager, 2 processes': [3, 2, 4],
    },
    typed_seconds=[2.0, 1.0, 2.0],
    images=2000,
    flops=80e9,
    product_flops=20e9,
  )


def test_ratios_are_taken_repeat_by_repeat_to_the_fastest_pytorch():
  one = made_up()
  assert one.rate(one.images).median == 1000
  # All repeats have the same share, however busy the machine was.
  assert one.share_of_product() == pytest.approx((0.4, 0.4, 0.4))
  assert one.torch_variant == 'eager, 2 processes'
  assert one.against_torch() == (1.5, 1.0, 2.0)
  assert one.against_torch(as_typed=True) == (2.0, 1.5, 2.0)


@pytest.mark.parametrize(
  ('bar', 'verdict'),
  [
    (Bar('a', 1.2, 1.25, 'x PyTorch', 'at least'), 'NOT MET'),
    (Bar('a', 20.0, 20, 's', 'at most'), 'met'),
    (Bar('a', None, 1.25, 'x PyTorch', 'at least', 'why'), 'not measured'),
  ],
)
def test_line_of_a_bar(bar, verdict):
  first, *rest = bar.lines()
  assert first.endswith(f'{bar.sense} {screen.number(bar.bar)}   {verdict}')
  assert rest == (['    why'] if bar.how else [])


# ---- from end to end


@pytest.mark.long
def test_the_command_measures_bars():
  done = user_commands.run('bench', '--bars=scale,forecast', '--repeats=1')
  assert done.returncode == 0, done.stderr
  assert 'forecast of memory, off by' in done.stdout


def test_an_unknown_bar_is_a_sentence(monkeypatch):
  monkeypatch.setenv('GLIBC_TUNABLES', '')  # which the command may set
  main, file = user_commands.load_command(monkeypatch, 'bench.py')
  monkeypatch.setattr('os.cpu_count', lambda: 999)  # not all may be used
  assert '999' not in main.__globals__['describe_machine']()
  commandline.parse_words([file, '--bars=convnet5'])
  assert 'did you mean convnet4?' in refused(main)
