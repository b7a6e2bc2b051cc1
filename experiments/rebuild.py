"""From a run directory back to its experiment, without writing into it."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from configs import common
from experiments.commandline import Overrides, replace_fields
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.reproduction import keys
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.identity import flatten
from fedjax_pfl.training import experiment
from fedjax_pfl.training.experiment import Experiment


def read_run(
  workdir: str | os.PathLike, overrides: Overrides, log: Callable[[str], None]
) -> tuple[dict[str, Any], str]:
  """Return the settings of a run and the fingerprint of its data.

  Fields that configs had not got when it was begun get their defaults, and
  `log` is told which.
  """
  stored = run_dir.load_config(workdir)
  if not isinstance(stored.get('config'), Mapping):
    raise bad_input(
      'run',
      got=str(workdir),
      expected='a run directory whose config.json holds a config',
      cause='a config.json of another program',
    )
  settings, added = fill(stored['config'], common.base().to_dict())
  if added:
    log(f'{workdir} is older than these fields, which get their defaults: ')
    log('  ' + ', '.join(f'{name}={value!r}' for name, value in added.items()))
  replace_fields(settings, overrides)
  return settings, stored['data']


def rebuild(
  settings: dict[str, Any],
  data: str,
  overrides: Overrides,
  log: Callable[[str], None],
) -> Experiment:
  """Return the experiment; its data are those of the run, or as overridden."""
  rebuilt = experiment.build_experiment(settings, log)
  if rebuilt.data_id == data:
    return rebuilt
  if not overrides:
    raise bad_input(
      'data',
      got=rebuilt.data_id,
      expected=f'the fingerprint of the run, {data}',
      cause='other images, or a partition that has changed since; '
      '--config.<field>=<value> says that other data are meant',
    )
  log('These data are not those of the run: fields of its config were given.')
  return rebuilt


def fill(
  settings: Mapping[str, Any], defaults: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Return the settings with absent fields filled in, and what was added.

  What has no default is kept: check_settings refuses it by its name.
  """
  filled = keys.fill(settings, defaults)
  known = flatten(settings)
  added = {
    name: value
    for name, value in flatten(filled).items()
    if name not in known and value != {}
  }
  return filled, added
