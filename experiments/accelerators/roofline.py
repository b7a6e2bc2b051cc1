"""Forecast the time of a program from what it does.

  seconds = max(bytes / bandwidth, FLOPs / peak) + kernels * launch

as if traffic and products overlapped perfectly within a program, each at the
speed that the manufacturer states, and launches did not. That is a bound from
below for the first term and no measurement: caches make it smaller, small
kernels, which fill neither the memory nor the products, make it larger.
"""

from experiments.accelerators.devices import Device
from experiments.accelerators.hlo_totals import Costs


def seconds(costs: Costs, device: Device, precision: str) -> float:
  """Return the roofline time of these costs, in a precision of configs.

  >>> h100 = devices.DEVICES['h100']
  >>> seconds(Costs(kernels=100, bytes=3.352e9), h100, 'float32')
  0.0012
  """
  moving = costs.bytes / device.bandwidth
  computing = costs.flops / device.peaks[precision]
  return max(moving, computing) + costs.kernels * device.launch


def limit(costs: Costs, device: Device, precision: str) -> str:
  """Return what takes most of that time: memory, products, or launches."""
  parts = {
    'memory': costs.bytes / device.bandwidth,
    'products': costs.flops / device.peaks[precision],
    'launches': costs.kernels * device.launch,
  }
  return max(parts, key=parts.get)


def compiler_seconds(costs: Costs, device: Device) -> float | None:
  """Return the TPU compiler's own estimate; None where it makes none.

  Its cycles, and the bandwidth for kernels to which it gives no cycles.
  """
  if not costs.cycles or device.clock is None:
    return None
  return costs.cycles / device.clock + costs.uncosted_bytes / device.bandwidth
