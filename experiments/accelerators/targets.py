"""Devices that are not there: their memory, their compilers, topologies.

  tpu     v5e:2x2, v5e:4x4 (four hosts), v4:2x2x1, v5p:2x2x1, v6e:2x2
  cuda    h100:8 (one host), h100:2x8 (two hosts of eight)

One platform a process: what was traced for another stays in jax's caches.
"""

import re
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedjax_pfl.core.errors import bad_input

DISTRIBUTIONS = {
  'tpu': ('libtpu',),
  'cuda': (
    *('jax-cuda13-pjrt', 'jax-cuda13-plugin'),
    *('nvidia-cuda-nvcc', 'nvidia-nvvm'),
  ),
}
EXAMPLES = {  # the first is taken if none is given
  'tpu': ('v5e:2x2', 'v5e:4x4', 'v4:2x2x1', 'v5p:2x2x1', 'v6e:2x2'),
  'cuda': ('h100:8', 'h100:2x8'),
}
KINDS = {'tpu': 'tpu', 'cuda': 'gpu'}  # as core/target.py calls them
SHAPES = {
  'tpu': re.compile(r'(\w+):(\d+(?:x\d+){0,2})'),
  'cuda': re.compile(r'(\w+):(\d+(?:x\d+)?)'),
}
GPU_SHARE = 0.75  # of its memory, that JAX takes as it starts


class Device(NamedTuple):
  """A chip, as `jax.devices()` counts them."""

  name: str
  memory: int  # bytes that programs can use


# TPUs: cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e}, "key chip specifications";
# the compiler refuses what exceeds 15.75 of a v5e's 16 GiB. H100 SXM: what such
# a device reports (h100.txtpb).
DEVICES = {
  'tpu': {
    'v5e': Device('TPU v5e', int(15.75 * 2**30)),
    'v4': Device('TPU v4', 32 * 2**30),
    'v5p': Device('TPU v5p', 95 * 2**30),
    'v6e': Device('TPU v6e', 32 * 2**30),
  },
  'cuda': {'h100': Device('H100 SXM', int(GPU_SHARE * 84_942_979_072))},
}


class Where(NamedTuple):
  """The devices that programs are compiled for."""

  platform: str  # 'tpu' or 'cuda'
  topology: str
  number: int = 1

  @property
  def device(self) -> Device:
    return DEVICES[self.platform][self.topology.partition(':')[0]]

  @property
  def kind(self) -> str:
    """Return the platform as core/target.py calls it."""
    return KINDS[self.platform]

  @property
  def devices(self) -> list[Any]:
    """Return the first devices of the topology, for jax's compiler."""
    available = _describe(self.platform, self.topology)
    if not 1 <= self.number <= len(available):
      raise bad_input(
        'devices',
        got=self.number,
        expected=f'a number from 1 to the {len(available)} of {self.topology}',
        choices=['a larger --topology', *EXAMPLES[self.platform]],
        cause='a topology with fewer devices',
      )
    return list(available[: self.number])


def make_where(platform: str, topology: str, number: int) -> Where:
  """Return the devices; refuse a platform that is unknown or not installed."""
  if platform not in DISTRIBUTIONS:
    raise bad_input(
      'platform',
      got=platform,
      expected='a platform of accelerators',
      choices=DISTRIBUTIONS,
      cause='a typing error; NVIDIA devices are cuda',
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
  return Where(platform, topology or EXAMPLES[platform][0], number)


def missing_packages(platform: str) -> list[str]:
  """Return the packages of a platform that are not installed."""
  needed = DISTRIBUTIONS[platform]
  return [name for name in needed if not [*metadata.distributions(name=name)]]


def _describe(platform: str, topology: str):
  """Return all devices of a topology; refuse one that is not built."""
  from jax.errors import JaxRuntimeError
  from jax.experimental.topologies import get_topology_desc

  found = SHAPES[platform].fullmatch(topology)
  try:
    if not found or found[1] not in DEVICES[platform]:
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
      choices=EXAMPLES[platform],
      cause='a typing error, or an arrangement that is not built',
    ) from error
