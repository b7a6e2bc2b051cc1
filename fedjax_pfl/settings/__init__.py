"""A config, checked and typed."""

from fedjax_pfl.settings.schema import FIELDS, Settings
from fedjax_pfl.settings.validate import (
  defaults,
  flat_config,
  parse_config,
  replace,
  to_config,
)

__all__ = [
  'FIELDS',
  'Settings',
  'defaults',
  'flat_config',
  'parse_config',
  'replace',
  'to_config',
]
