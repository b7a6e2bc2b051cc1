"""Robust means, and attacks on uploads, against byzfl's NumPy functions."""

import jax
import jax.numpy as jnp

from fedjax_pfl.around import attacks, robust
from fedjax_pfl.core import trees


def check(case):
  for name, sizes in case['sets'].items():
    n, liars = sizes['n'], sizes['f']
    rows, order = case.given(f'{name}/changes', f'{name}/order')
    known = robust.Known(
      None,
      jnp.ones(n, bool),
      liars,
      jnp.arange(n) == case['trusted'],
      case['radius'],
    )
    for key in [own for own in case.arrays if own.startswith(f'{name}/')]:
      what, _, against = key.removeprefix(f'{name}/').partition('/')
      *before, rule = what.split('+')
      if rule in robust.BEFORE:
        case.check(key, mixed(case, [rule], rows, known, order) @ rows)
      elif rule in robust.RULES:
        case.check(key, mean(case, rule, rows, known, before))
      elif what not in ('changes', 'order'):
        case.check(key, forged(case, what, rows, known, against))


def mixed(case, names, rows, known, order=None):
  """Return A of the rules before another."""
  total = jnp.eye(len(rows))
  for name in names:
    how = (order, case['bucket']) if name == 'bucketing' else ()
    now = known._replace(products=(total @ rows) @ (total @ rows).T)
    total = robust.BEFORE[name](now, *how) @ total
  return total


def mean(case, rule, rows, known, before):
  """Return what a rule makes of rows [n, d], as a tree of two leaves."""
  how = {
    'geometric_median': {'nu': case['nu'], 'steps': case['steps']},
    'centred_clipping': {'steps': case['clips']},
  }
  if rule in robust.OF_CHANGES:
    own = robust.OF_CHANGES[rule]
    rule = lambda known: own(known, **how.get(own.__name__, {}))
  found, _ = robust.robust_mean(
    rule, tree(rows), known, before, jax.random.key(0)
  )
  return jnp.concatenate([found['a'][0], found['b']])


def forged(case, name, rows, known, against):
  """Return what an attacker sends; the server mixes before a rule."""
  n = len(rows)
  is_bad = jnp.arange(n) >= n - known.liars

  def aggregated(sent):
    rows = jnp.concatenate([sent['a'][:, 0], sent['b']], 1)
    return tree(mean(case, against, rows, known, ['mixing'])[None])

  attack, args = attacks.Attack(name), (is_bad, ~is_bad, jnp.arange(n))
  sent = attacks.forged(attack, tree(rows), *args, None, aggregated)
  sent = trees.gather(sent, n - 1)
  return jnp.concatenate([sent['a'][0], sent['b']])


def tree(rows):
  rows = jnp.asarray(rows)
  return {'a': rows[:, None, :2], 'b': rows[:, 2:]}


CHECKS = {'robust means and attacks': check}
