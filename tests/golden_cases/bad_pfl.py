"""Bad-PFL's trigger against the code of its authors."""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.around import bad_pfl

WIDTHS = 3, 16, 32, 64, 128, 64, 32, 16, 3


def check(case):
  rng = np.random.default_rng(79)
  images = lambda *size: (
    jnp.array(rng.integers(0, 256, (*size, 16, 16, 3))),
    jnp.array(rng.integers(0, 3, size)),
    jnp.array(rng.uniform(-4, 4, (*size, 16, 16, 3))),
  )
  batches, (x, y, start) = images(30, 4), images(3)
  w1, w2 = rng.normal(size=(768, 6)) / 30, rng.normal(size=(6, 3))
  logits = lambda x: jnp.tanh(x.reshape(len(x), -1) / 255 @ w1) @ w2
  g = {}
  for number, (width, after) in enumerate(pairwise(WIDTHS)):
    kernel = jnp.array(rng.uniform(-0.1, 0.1, (4, 4, width, after)))
    bias = jnp.array(rng.uniform(-0.1, 0.1, after))
    g[f'Conv_{number}'] = {'kernel': kernel, 'bias': bias}
    norm = {'scale': jnp.ones(after), 'bias': jnp.zeros(after)}
    g |= {f'BatchNorm_{number}': norm} if after > 3 else {}
  disrupted, g = bad_pfl.disrupted(logits, x, y, start), {'params': g}
  case.check('disrupted', disrupted)
  case.check('generated', bad_pfl.GENERATE(g, x))
  g = bad_pfl.fit(g, logits, batches, case['target'])
  after = bad_pfl.GENERATE(g, x)
  case.check('generated_after', after)
  case.check('triggered', disrupted + bad_pfl.LEVELS * after)


CHECKS = {'bad-pfl': check}
