"""Several seeds of one experiment: each a run of its own.

Its data are partitioned, its model initialised and its clients sampled by its
own seed. Shared are the images and the compiled programs; which seeds run side
by side, drivers/multi_seed.py decides.
"""

from collections.abc import Sequence
from os import fspath

import jax.numpy as jnp
import numpy as np

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Array, ClientData
from fedjax_pfl.settings.traced import flat_settings, traced_names
from fedjax_pfl.training.build import Experiment
from fedjax_pfl.training.build_data import UnseenClients
from fedjax_pfl.training.one_program import share

# The settings in which seeds may differ: each may start from a run of its own.
OWN = ('seed', 'init_from')


def check_seeds(
  experiments: Sequence[Experiment], workdirs: Sequence[str]
) -> None:
  """Refuse what are not seeds of one experiment, each with its directory."""
  configs = [flat_settings(own.settings) for own in experiments]
  first = configs[0]
  own = {*OWN, *traced_names(experiments[0].settings)}
  names = [
    name
    for name in dict.fromkeys(name for config in configs for name in config)
    if name not in own
    and any(config.get(name) != first.get(name) for config in configs)
  ]
  if names:
    raise bad_input(
      'experiments',
      got={name: [config.get(name) for config in configs] for name in names},
      expected=f'the same settings in all of them but for {" and ".join(OWN)}, '
      'and numbers that change no shape',
      cause='several experiments: train those one after the other',
    )
  paths = [fspath(workdir) for workdir in workdirs]
  if len(set(paths)) < len(paths) or len(paths) != len(experiments):
    raise bad_input(
      'workdirs',
      got=paths,
      expected=f'{len(experiments)} directories, one for each seed',
      cause='a name without the seed in it',
    )


def align(experiments: Sequence[Experiment]) -> list[Experiment]:
  """Return the seeds with data of one shape, on the same images.

  Clients are padded to the widest of any seed, which moves results by no more
  than rounding; the images and the functions are those of the first.
  """
  first = experiments[0]
  for other in experiments:
    assert other.dataset.fingerprint == first.dataset.fingerprint
  train = _align_data([experiment.train for experiment in experiments])
  test = _align_data([experiment.test for experiment in experiments])
  unseen = validation = [None] * len(experiments)
  if first.validation is not None:
    validation = _align_data([own.validation for own in experiments])
  if first.unseen is not None:
    parts = zip(*(own.unseen for own in experiments), strict=True)
    unseen = [
      UnseenClients(*own) for own in zip(*map(_align_data, parts), strict=True)
    ]
  return [
    experiment._replace(
      train=train[seed],
      test=test[seed],
      validation=validation[seed],
      unseen=unseen[seed],
    )
    for seed, experiment in enumerate(share(experiments))
  ]


def _align_data(tables: Sequence[ClientData]) -> list[ClientData]:
  first = tables[0]
  width = max(table.index.shape[1] for table in tables)
  return [
    ClientData(first.x, first.y, _widen(table.index, width), table.count)
    for table in tables
  ]


def _widen(index: Array, width: int) -> Array:
  """Return the rows [K, N] with N = width; the padding is a valid index."""
  missing = width - index.shape[1]
  pad = np.pad if isinstance(index, np.ndarray) else jnp.pad
  return pad(index, ((0, 0), (0, missing))) if missing else index
