"""Entries made of numbers: nothing is trained."""

import numpy as np

from fedjax_pfl.leaderboard.entries import Costs, Entry, Tuned

S, K = 3, 20
COSTS = Costs(1200.0, 3e6, 4e6, 2.5)


def make_entry(method, mean, *, spread=0.0, before=None, **changes):
  """Return an entry whose clients differ from `mean` by a pattern of their own.

  The pattern is that of all methods; `spread` is what pairs differ by.
  """
  pattern = 10 * np.cos(np.arange(S * K)).reshape(S, K)
  pattern -= pattern.mean()
  own = np.random.default_rng(len(method)).normal(size=(S, K))
  after = mean + pattern + spread * (own - own.mean())
  first = None if before is None else before + pattern
  choice = Tuned(0.03, 'finetuned', 91.0, is_edge=False)
  fields = {'choice': choice, 'before': first, 'after': after, 'costs': COSTS}
  return Entry(method, is_reference=False, **fields)._replace(**changes)


def make_entries():
  return [
    make_entry('fedavg', 80, before=55),
    make_entry('local_only', 78, spread=1),
    make_entry('fedrep', 84, spread=1, before=70),
    make_entry('fedbabu', 84.1, spread=2, before=60),
    make_entry('ditto', 77.9, spread=6, before=55),
    make_entry('per_fedavg', 60, spread=1, before=50),
    make_entry(
      'centralized', 0, is_reference=True, after=np.full((S, 1), 97.5)
    ),
    make_entry(
      'pfedme', 0, after=None, costs=None, obstacle='diverged with every rate'
    ),
  ]
