"""Read WAV files as grey images: time from left to right, low tones at the top.

  x[m, t] = 255 (1 + max(-1, L[m, t] / 80)),  L = 10 log10(M / max M)
  M[m, t] = sum_f W[m, f] |DFT(h s_t)[f]|^2,  s_t = s[t d, t d + 2 d)

of the first second s of a file, zeros behind a shorter one; d = rate / side
samples, h a Hann window of 2 d samples, W `side` triangles on the mel scale
from 0 to rate / 2, image_size=side or 32. Channels are averaged.
"""

import pathlib
from collections.abc import Sequence

import numpy as np

from fedjax_pfl.core.errors import BadInput, bad_input

SIDE = 32
DECIBELS = 80  # below the loudest entry of the image: 0
LEAST_RATE = 4000


def read_files(files: Sequence[pathlib.Path], side: int) -> np.ndarray:
  """Return [P, side, side, 1] uint8; refuse files of unlike rates."""
  side = side or SIDE
  rate, _ = _read(files[0])
  filters = mel_filters(rate, side)
  images = np.empty((len(files), side, side, 1), np.uint8)
  for row, file in enumerate(files):
    other, samples = _read(file)
    if other != rate:
      raise _refusal(
        f'{file} of {other:,} samples a second; {files[0]} has {rate:,}',
        'recordings of several sources: bring them to one rate',
      )
    images[row, ..., 0] = log_mel(samples, rate, filters)
  return images


def log_mel(samples: np.ndarray, rate: int, filters: np.ndarray) -> np.ndarray:
  """Return the image [side, side] of samples [n]."""
  side = len(filters)
  step = rate // side
  sound = np.zeros(step * (side + 1))
  number = min(len(samples), rate, len(sound))
  sound[:number] = samples[:number]
  frames = np.lib.stride_tricks.sliding_window_view(sound, 2 * step)[::step]
  spectrum = np.abs(np.fft.rfft(frames * np.hanning(2 * step + 1)[:-1])) ** 2
  power = filters @ spectrum.T
  if not power.any():
    return np.zeros_like(power, np.uint8)
  with np.errstate(divide='ignore'):
    level = 10 * np.log10(power / power.max())
  return np.rint(255 * (1 + np.maximum(level / DECIBELS, -1))).astype(np.uint8)


def mel_filters(rate: int, side: int) -> np.ndarray:
  """Return the triangles [side, F]; neighbours cross where both are a half."""
  most = 2595 * np.log10(1 + rate / 2 / 700)
  edges = 700 * (10 ** (np.linspace(0, most, side + 2) / 2595) - 1)
  low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
  tones = np.fft.rfftfreq(2 * (rate // side), 1 / rate)
  rising = (tones - low) / (middle - low)
  falling = (high - tones) / (high - middle)
  return np.maximum(0, np.minimum(rising, falling))


def _read(file: pathlib.Path) -> tuple[int, np.ndarray]:
  """Return the rate and the samples [n] of a file; refuse damage."""
  from scipy.io import wavfile

  try:
    rate, samples = wavfile.read(file)
    if rate < LEAST_RATE or not len(samples) or not np.isfinite(samples).all():
      raise ValueError(f'{len(samples)} samples at a rate of {rate}, or NaN')
  except PermissionError:
    raise
  except Exception as error:  # SciPy raises half a dozen kinds
    cause = 'a copy that was cut short, or a compressed format'
    raise _refusal(f'{file}, which does not decode: {error}', cause) from error
  if samples.dtype == np.uint8:  # silence is 128
    samples = samples - 128.0
  return rate, samples.reshape(len(samples), -1).mean(1)


def _refusal(got: str, cause: str) -> BadInput:
  return bad_input(
    'data_dir',
    got=got,
    expected='WAV files of one rate, 4,000 samples a second or more',
    choices=['ffmpeg -i IN -ar 8000 OUT.wav'],
    cause=cause,
  )
