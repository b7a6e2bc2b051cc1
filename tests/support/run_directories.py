"""Run directories of one small config, for tests of what is in them."""

import helpers

from fedjax_pfl.runs import run_dir

CONFIG = {
  'algorithm': 'fedbabu',
  'hp': {
    'lr': 0.1,
    'decay_at': (0.5, 0.75),
    'clip': float('inf'),
    'floor': float('nan'),
  },
  'seed': 1,
  'shards_per_client': None,
}


def begin(path, data='digits-1', log=print, **changes):
  return run_dir.open_run(path, {**CONFIG, **changes}, data=data, log=log)


def refused(call, *args):
  """Return the sentence with which a call is refused; it has choices."""
  message = helpers.refused(call, *args)
  assert 'Choices: ' in message
  return message
