"""A config, checked and typed, in sections that rooms are handed one by one."""

from fedjax_pfl.core.records import EVALUATION, TRAINING
from fedjax_pfl.data.fields import DataSettings
from fedjax_pfl.settings.schema import FIELDS, RESUMABLE, Settings, changing
from fedjax_pfl.settings.validate import (
  defaults,
  flat_config,
  parse_config,
  replace,
  to_config,
)
