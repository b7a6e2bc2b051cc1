"""Sounds as images, against the definition written as loops."""

import math

import numpy as np
import pytest
from helpers import refused
from scipy.io import wavfile

from fedjax_pfl.data.datasets import load_dataset, peek

RATE, SIDE = 4000, 8


def noise(seed, size=3000):
  return np.random.default_rng(seed).integers(-9000, 9000, size, np.int16)


def save(root, samples, name='0.wav', rate=RATE):
  for client, word in ('ann', 'no'), ('ann', 'yes'), ('bob', 'no'):
    file = root / client / word / name
    file.parent.mkdir(parents=True, exist_ok=True)
    wavfile.write(file, rate, samples)


def load(root, side=SIDE):
  return load_dataset('folder', data_dir=str(root), image_size=side)


def to_mel(tone):
  return 2595 * math.log10(1 + tone / 700)


def by_loops(samples):
  """Return the image of the definition, one frame and one band at a time."""
  step, top = RATE // SIDE, to_mel(RATE / 2)
  sound = [*samples[:RATE]] + [0] * 2 * RATE
  edge = [700 * (10 ** (top * m / (SIDE + 1) / 2595) - 1) for m in range(99)]
  power = np.zeros((SIDE, SIDE))
  for t in range(SIDE):
    hann = [0.5 - 0.5 * math.cos(math.pi * n / step) for n in range(2 * step)]
    frame = [h * sound[t * step + n] for n, h in enumerate(hann)]
    for f in range(step + 1):
      turn = np.exp(-1j * math.pi * f * np.arange(2 * step) / step)
      energy, tone = abs(np.dot(frame, turn)) ** 2, f * RATE / (2 * step)
      for m in range(SIDE):
        low, middle, high = edge[m : m + 3]
        if low < tone <= middle:
          power[m, t] += energy * (tone - low) / (middle - low)
        elif middle < tone < high:
          power[m, t] += energy * (high - tone) / (high - middle)
  level = 10 * np.log10(np.maximum(power / power.max(), 1e-30))
  return 255 * (1 + np.maximum(level, -80) / 80)


@pytest.mark.parametrize('size', [3000, 9000])
def test_an_image_is_that_of_the_definition(tmp_path, size):
  save(tmp_path, noise(0, size))
  dataset = load(tmp_path)
  assert peek('folder', str(tmp_path), image_size=SIDE).image_shape == (8, 8, 1)
  assert peek('folder', str(tmp_path)).image_shape == (32, 32, 1)
  assert dataset.train.x.shape == (3, SIDE, SIDE, 1)
  assert [*dataset.client_names] == ['ann', 'bob']
  image = dataset.train.x[0, ..., 0]
  assert np.abs(image - by_loops(noise(0, size))).max() <= 0.501
  assert image.max() == 255 and len(np.unique(image)) > 20


def test_a_low_tone_is_at_the_top_and_formats_agree(tmp_path):
  time = np.arange(RATE) / RATE
  tone = np.sin(2 * math.pi * 150 * time)
  stereo = np.stack([2 * tone, 0 * tone], 1).astype(np.float32)
  bytes_ = np.rint(127 * tone + 128).astype(np.uint8)
  save(tmp_path, (30000 * tone).astype(np.int16))
  for name, samples in ('1.wav', stereo), ('2.wav', bytes_):
    save(tmp_path, samples, name)
  first, mixed, coarse = load(tmp_path, 32).train.x[:3, ..., 0].astype(int)
  assert first[:, 5].argmax() == 32 * to_mel(150) // to_mel(RATE / 2)
  assert np.abs(first - mixed)[first > 60].max() <= 1
  assert np.abs(first - coarse)[first > 150].max() <= 8
  save(tmp_path, np.zeros(9, np.int16))
  assert not load(tmp_path).train.x[0].any()


def test_files_of_another_rate_are_refused(tmp_path):
  save(tmp_path, noise(0))
  save(tmp_path, noise(0), '1.wav', rate=8000)
  text = refused(load, tmp_path)
  assert '8,000 samples a second' in text and 'has 4,000' in text
  save(tmp_path, noise(0), '1.wav', rate=2000)
  assert 'rate of 2000' in refused(load, tmp_path)
  (tmp_path / 'ann' / 'no' / '1.wav').write_bytes(b'RIFF no sound')
  assert 'does not decode' in refused(load, tmp_path)
  (tmp_path / 'ann' / 'no' / '1.png').write_bytes(b'')
  assert 'with sounds beside images' in refused(load, tmp_path)
