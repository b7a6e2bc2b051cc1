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
  number: int  # of the topology


LISTED = tomllib.loads((FOLDER / 'devices.toml').read_text('utf-8'))
DEVICES = {name: Device(**fields) for name, fields in LISTED.items()}


def find_device(text: str) -> tuple[Device, int]:
  """Return a device and how many; refuse what is unknown or cannot compile."""
  name, _, number = text.partition(':')
  one_of(DEVICES, 'a device', 'a typing error').check('device', name)
  if missing := missing_packages(name):
    raise bad_input(
      'device',
      got=f'{name} without {", ".join(missing)}',
      expected='the packages that compile for it; no device is needed',
      choices=['make accelerators, which installs them'],
      cause='an environment other than .venv-accelerators',
    )
  there = DEVICES[name].number
  is_there = f'a number of devices, up to {there}'
  numbers = one_of([*map(str, range(1, there + 1))], is_there)
  numbers.check('device', number or '1')
  return DEVICES[name], int(number or 1)


def missing_packages(name: str) -> list[str]:
  own = PACKAGES[DEVICES[name].kind].split()
  return [one for one in own if not [*metadata.distributions(name=one)]]


def describe(device: Device, number: int = 1) -> list[Any]:
  """Return the first devices of the topology for jax's compiler."""
  from jax.experimental.topologies import get_topology_desc

  if device.kind == 'gpu':
    config = (FOLDER / 'h100.txtpb').read_text('utf-8')
    more = {'target_config': config, 'topology': device.topology}
    return get_topology_desc('h100', 'cuda', **more).devices[:number]
  # A v4 has two cores, which programs use as one device.
  is_v4 = device.topology.startswith('v4')
  more = {'chip_config_name': 'megacore'} if is_v4 else {}
  return get_topology_desc(device.topology, 'tpu', **more).devices[:number]
