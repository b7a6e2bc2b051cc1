"""Devices that are not there: devices.toml lists them."""

import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.rules import one_of

FOLDER = Path(__file__).parent
PACKAGES = {  # that compile for a kind of device
  'gpu': 'jax-cuda13-pjrt jax-cuda13-plugin nvidia-cuda-nvcc nvidia-nvvm',
  'tpu': 'libtpu',
}


class Device(NamedTuple):
  """A chip, as `jax.devices()` counts them."""

  kind: str
  topology: str
  name: str
  memory: int  # bytes that programs can use


LISTED = tomllib.loads((FOLDER / 'devices.toml').read_text('utf-8'))
DEVICES = {name: Device(**fields) for name, fields in LISTED.items()}


def find_device(name: str) -> Device:
  """Return a device; refuse one that is unknown, or without its compiler."""
  one_of(DEVICES, 'a device', 'a typing error').check('device', name)
  if missing := missing_packages(name):
    raise bad_input(
      'device',
      got=f'{name} without {", ".join(missing)}',
      expected='the packages that compile for it; no device is needed',
      choices=['make accelerators, which installs them'],
      cause='an environment other than .venv-accelerators',
    )
  return DEVICES[name]


def missing_packages(name: str) -> list[str]:
  own = PACKAGES[DEVICES[name].kind].split()
  return [one for one in own if not [*metadata.distributions(name=one)]]


def describe(name: str) -> Any:
  """Return the device for jax's compiler."""
  from jax.experimental.topologies import get_topology_desc

  kind, topology, _, _ = DEVICES[name]
  if kind == 'gpu':
    config = (FOLDER / f'{name}.txtpb').read_text('utf-8')
    more = {'target_config': config, 'topology': topology}
    return get_topology_desc(name, 'cuda', **more).devices[0]
  # A v4 has two cores, which programs use as one device.
  more = {'chip_config_name': 'megacore'} if name == 'v4' else {}
  return get_topology_desc(topology, 'tpu', **more).devices[0]
