"""Devices that are not there: devices.toml lists them.

A topology is a chip and an arrangement: v5e:4x4 (four hosts), h100:2x8 (two
hosts of eight).

One platform a process: what was traced for another stays in jax's caches.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of

PLATFORMS = tomllib.loads(
  Path(__file__).with_name('devices.toml').read_text(encoding='utf-8')
)


class Device(NamedTuple):
  """A chip, as `jax.devices()` counts them."""

  name: str
  memory: int  # bytes that programs can use


class Where(NamedTuple):
  """The devices that programs are compiled for."""

  platform: str  # 'tpu' or 'cuda'
  topology: str
  number: int = 1

  @property
  def device(self) -> Device:
    chip, _, _ = self.topology.partition(':')
    return Device(**PLATFORMS[self.platform]['devices'][chip])

  @property
  def kind(self) -> str:
    return PLATFORMS[self.platform]['kind']

  @property
  def devices(self) -> list[Any]:
    """Return the first devices of the topology, for jax's compiler."""
    available = _describe(self.platform, self.topology)
    topologies = PLATFORMS[self.platform]['topologies']
    if not 1 <= self.number <= len(available):
      raise bad_input(
        'devices',
        got=self.number,
        expected=f'a number from 1 to the {len(available)} of {self.topology}',
        choices=['a larger --topology', *topologies],
        cause='a topology with fewer devices',
      )
    return list(available[: self.number])


def make_where(platform: str, topology: str, number: int) -> Where:
  """Return the devices; refuse a platform that is unknown or not installed."""
  cause = 'a typing error; NVIDIA devices are cuda'
  one_of(PLATFORMS, 'a platform of accelerators', cause).check(
    'platform', platform
  )
  if missing := missing_packages(platform):
    raise bad_input(
      'platform',
      got=f'{platform} without {", ".join(missing)}',
      expected='the packages that compile for it; no device is needed',
      choices=[
        'make accelerators, which installs them into .venv-accelerators'
      ],
      cause='an environment without them; .venv has none of them',
    )
  topology = topology or PLATFORMS[platform]['topologies'][0]
  return Where(platform, topology, number)


def missing_packages(platform: str) -> list[str]:
  """Return the packages of a platform that are not installed."""
  return [
    name
    for name in PLATFORMS[platform]['packages']
    if not [*metadata.distributions(name=name)]
  ]


def _describe(platform: str, topology: str):
  """Return all devices of a topology; refuse one that is not built."""
  from jax.errors import JaxRuntimeError
  from jax.experimental.topologies import get_topology_desc

  known = PLATFORMS[platform]
  found = re.fullmatch(known['pattern'], topology)
  try:
    if not found or found[1] not in known['devices']:
      raise LookupError(topology)
    if platform == 'tpu':
      # A v4 has two cores, which programs use as one device.
      more = {'chip_config_name': 'megacore'} if found[1] == 'v4' else {}
      return get_topology_desc(topology, platform, **more).devices
    hosts, each = ('1', *found[2].split('x'))[-2:]
    config = Path(__file__).with_name(f'{found[1]}.txtpb').read_text()
    return get_topology_desc(
      found[1], platform, target_config=config, topology=f'1x{hosts}x{each}'
    ).devices
  except (LookupError, JaxRuntimeError) as error:
    raise bad_input(
      'topology',
      got=topology,
      expected=f'devices of the platform {platform} and their arrangement',
      choices=known['topologies'],
      cause='a typing error, or an arrangement that is not built',
    ) from error
