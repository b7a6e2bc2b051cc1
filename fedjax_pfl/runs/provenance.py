"""The provenance of a run: versions, commit, devices, processor."""

import importlib.metadata
import pathlib
import platform
import subprocess
from collections import Counter
from typing import Any

import jax

from fedjax_pfl.core.machine import num_cores


def provenance() -> dict[str, Any]:
  """Return the versions and devices that a number may depend on."""
  try:
    version = importlib.metadata.version('fedjax_pfl')
  except importlib.metadata.PackageNotFoundError:
    version = 'not installed'
  kinds = Counter(f'{d.platform} {d.device_kind}' for d in jax.devices())
  return {
    'version': version,
    'commit': _commit(pathlib.Path(__file__).parents[2]),
    'jax': jax.__version__,
    'devices': [f'{number} x {kind}' for kind, number in kinds.items()],
    'processor': processor(),
  }


def processor() -> str:
  """Return the processor, and how many of its cores this process may use."""
  name = platform.processor() or platform.machine()
  cpuinfo = pathlib.Path('/proc/cpuinfo')  # of Linux
  for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
    if line.startswith('model name'):
      name = line.partition(':')[2].strip()
      break
  return f'{name}, {num_cores()} cores'


def _commit(root: pathlib.Path) -> str | None:
  """Return the commit of the checkout, `-dirty` if edited; else None.

  What was run may be written into results/ meanwhile: that is no code.
  """
  if not (root / '.git').exists():  # installed: git would find another one
    return None
  commands = 'rev-parse HEAD', 'status --porcelain -uno -- . :(exclude)results'
  try:
    commit, edited = (
      subprocess.run(
        ['git', *command.split()],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=10,
      ).stdout.strip()
      for command in commands
    )
  except (OSError, subprocess.SubprocessError):  # no git, or a slow disk
    return None
  return f'{commit}-dirty' if edited else commit or None
