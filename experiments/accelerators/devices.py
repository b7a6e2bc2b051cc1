"""What one device can do: memory, bandwidth, peaks, the cost of a launch.

Peaks are those of products, of the manufacturer, without sparsity, by the
setting `precision` of a config: a TPU multiplies bfloat16 only, three passes
for tf32 and six for float32 (jax.lax.Precision.HIGH and HIGHEST).
"""

from typing import NamedTuple

from fedjax_pfl.core.errors import bad_input

GPU_SHARE = 0.75  # of its memory, that JAX uses
GB, TB, TFLOPS = 10**9, 10**12, 10**12


class Device(NamedTuple):
  """A chip, as `jax.devices()` counts them."""

  name: str
  memory: int  # bytes that programs can use
  bandwidth: float  # bytes/s of the main memory
  peaks: dict[str, float]  # FLOP/s by the precision of a config
  launch: float = 0  # s that a kernel costs in addition to its work
  clock: float | None = None  # Hz of the compiler's cycles


def _tpu(name, memory, bandwidth, bfloat16, clock) -> Device:
  # One program runs all operations: none is launched by a host. The compiler's
  # estimate of cycles has their overheads.
  peaks = {'float32': bfloat16 / 6, 'tf32': bfloat16 / 3, 'mixed': bfloat16}
  return Device(name, memory, bandwidth, peaks, 0, clock)


# TPUs: cloud.google.com/tpu/docs/{v4,v5e,v5p,v6e}, "key chip specifications".
# Clocks follow from the peak and the products of a cycle (v5e: four units of
# 128 x 128); v6e's is left out, since the units of that page do not give it.
# The compiler refuses what exceeds 15.75 of a v5e's 16 GiB.
#
# H100 SXM: NVIDIA H100 datasheet, dense: TF32 989 / 2, BF16 1,979 / 2, FP32 67
# TFLOP/s; memory and bandwidth are those of h100.txtpb, what such a device
# reports. Of a GPU's memory JAX takes 75 % as it starts, if
# XLA_PYTHON_CLIENT_MEM_FRACTION does not say otherwise. The launch is an
# assumption: NVIDIA's "Getting Started with CUDA Graphs" has 3.8 us for a
# kernel of 2.9 us in a stream, 9.6 us where the host waits for each (on a
# V100).
DEVICES = {
  'v5e': _tpu('TPU v5e', int(15.75 * 2**30), 819 * GB, 197 * TFLOPS, 1.5e9),
  'v4': _tpu('TPU v4', 32 * 2**30, 1228 * GB, 275 * TFLOPS, 1.05e9),
  'v5p': _tpu('TPU v5p', 95 * 2**30, 2765 * GB, 459 * TFLOPS, 1.75e9),
  'v6e': _tpu('TPU v6e', 32 * 2**30, 1638 * GB, 918 * TFLOPS, None),
  'h100': Device(
    'H100 SXM',
    int(GPU_SHARE * 84_942_979_072),
    3.352 * TB,
    {'float32': 67 * TFLOPS, 'tf32': 494.7 * TFLOPS, 'mixed': 989.4 * TFLOPS},
    launch=2e-6,
  ),
}
BY_PLATFORM = {'tpu': ('v5e', 'v4', 'v5p', 'v6e'), 'cuda': ('h100',)}


def find(platform: str, name: str) -> Device:
  """Return a device of a platform by the name in a topology."""
  if name not in BY_PLATFORM[platform]:
    raise bad_input(
      'topology',
      got=name,
      expected=f'a device of the platform {platform}',
      choices=BY_PLATFORM[platform],
      cause='a typing error, or a device whose numbers nobody wrote down yet: '
      'experiments/accelerators/devices.py',
    )
  return DEVICES[name]
