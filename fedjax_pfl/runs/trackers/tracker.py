"""The interface of trackers, which show the numbers of a run as it goes on.

tensorboard   tb/ in the run directory; every run has it
wandb         Weights & Biases
mlflow        an MLflow server, or a file

The last two are services of packages that are installed apart. A module has
`start(begin) -> Tracker`, which starts a run at its service, or continues it.
"""

import importlib.util
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from fedjax_pfl.core.errors import bad_input

NONE = 'none'
SERVICES = ('wandb', 'mlflow')
TRACKERS = (NONE, *SERVICES)
PROJECT = 'fedjax_pfl'  # of runs whose environment names no other

Numbers = Mapping[str, Any]


class Begin(NamedTuple):
  """What a tracker is told of a run that starts or continues."""

  folder: pathlib.Path  # the run directory, whose name is that of the run
  config: Mapping[str, Any]  # in the types of JSON
  id: str | None = None  # of the tracker's own run; None: there is none yet
  last_round: int | None = None  # of the checkpoint; later ones come again


class Tracker(Protocol):
  """A run, as a tracker shows it.

  A run that was stopped logs the rounds after its checkpoint once more; they
  are shown once.
  """

  id: str  # by which `start` finds the run again
  place: str  # where a person finds it

  def log(self, step: int, now: float, numbers: Numbers) -> None:
    """Show the numbers of a round; `now` is in seconds since 1970."""

  def finish(self, result: Numbers | None) -> None:
    """Show result.json; None: the run stops, and may be continued."""


def check_installed(name: str) -> None:
  """Refuse a service whose package is not installed."""
  if name == NONE:
    return
  spec = importlib.util.find_spec(name)
  # A folder of this name, such as wandb's own, would be found without origin.
  if spec is None or spec.origin is None:
    raise bad_input(
      'tracker',
      got=f'{name}, which is not installed here',
      expected=f'the package {name}: pip install {name}',
      choices=[one for one in TRACKERS if one != name],
      cause='it is optional, and this environment is without it',
    )


def scalars(numbers: Numbers) -> dict[str, float]:
  """Return what is a number: neither a name, nor a list, nor absent."""
  return {
    name: number
    for name, number in numbers.items()
    if isinstance(number, int | float) and not isinstance(number, bool)
  }


def flat_scalars(result: Numbers, prefix: str = '') -> dict[str, float]:
  """Return the numbers in a tree of dicts by their paths.

  >>> flat_scalars({'status': 'finished', 'views': {'initial': {'mean': 50.0}}})
  {'views/initial/mean': 50.0}
  """
  flat = {f'{prefix}{name}': n for name, n in scalars(result).items()}
  for name, inner in result.items():
    if isinstance(inner, Mapping):
      flat |= flat_scalars(inner, f'{prefix}{name}/')
  return flat
