"""A config, checked and typed."""

from fedjax_pfl.settings.schema import FIELDS, RESUMABLE, Settings, changing
from fedjax_pfl.settings.validate import (
  defaults,
  flat_config,
  parse_config,
  replace,
  to_config,
)

__all__ = [
  'FIELDS',
  'RESUMABLE',
  'Settings',
  'changing',
  'defaults',
  'flat_config',
  'parse_config',
  'replace',
  'to_config',
]
