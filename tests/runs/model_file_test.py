"""A model file keeps every bit, and damage is detected."""

import ml_dtypes
import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.runs.model_file import load_model, save_model

META = {
  'model': 'convnet4',
  'image_shape': (32, 32, 3),
  'num_classes': 10,
  'view': 'finetuned',
  'client': np.int32(7),
}


def make_params():
  rng = np.random.default_rng(0)
  return {
    'body': {
      'conv_1': {'kernel': rng.standard_normal((3, 3, 3, 8), np.float32)},
      'norm': {'scale': np.ones(8, ml_dtypes.bfloat16), 'step': np.int32(3)},
    },
    'head': {'bias': np.array([-0.0, np.nan])},
  }


def test_a_model_comes_back_bit_for_bit(tmp_path):
  want = make_params()
  for meta in ({}, META):  # the second replaces the first
    save_model(tmp_path / 'global.npz', want, meta)
  assert [path.name for path in tmp_path.iterdir()] == ['global.npz']
  with np.load(tmp_path / 'global.npz', allow_pickle=False) as arrays:
    assert arrays['body/conv_1/kernel'].shape == (3, 3, 3, 8)
    assert '"model": "convnet4"' in str(arrays['meta'])
  params, meta = load_model(tmp_path / 'global.npz')
  assert meta == {**META, 'image_shape': [32, 32, 3], 'client': 7}
  scale = params['body']['norm'].pop('scale')
  assert scale.dtype == ml_dtypes.bfloat16
  assert scale.tobytes() == want['body']['norm'].pop('scale').tobytes()
  np.testing.assert_equal(params, want)
  assert params['body']['conv_1']['kernel'].dtype == np.float32
  assert np.signbit(params['head']['bias'][0])


def test_a_missing_file_names_the_others(tmp_path):
  save_model(tmp_path / 'client_7.npz', make_params(), META)
  with pytest.raises(BadInput) as caught:
    load_model(tmp_path / 'client_8.npz')
  assert "client_8.npz', expected a file that save_model" in str(caught.value)
  assert f'did you mean {tmp_path / "client_7.npz"}?' in str(caught.value)
  np.savez(tmp_path / 'clients.npz', ids=np.arange(3))
  with pytest.raises(BadInput, match="with an array 'meta'"):
    load_model(tmp_path / 'clients.npz')


def test_no_flipped_byte_and_no_cut_gives_a_wrong_number(tmp_path):
  path = tmp_path / 'm.npz'
  params = {'head': {'kernel': np.arange(6.0)}}
  save_model(path, params, {})
  whole = path.read_bytes()
  damaged = [whole[:length] for length in (0, 10, len(whole) - 1)]
  for at in range(0, len(whole), 3):
    damaged.append(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
  detected = 0
  for content in damaged:
    path.write_bytes(content)
    try:
      got, _ = load_model(path)
    except BadInput:
      detected += 1
      continue
    # Some bytes of a zip archive (times, attributes) have no meaning.
    np.testing.assert_equal(got, params)
  assert detected > len(damaged) / 2
