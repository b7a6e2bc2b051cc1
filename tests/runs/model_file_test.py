"""Damage to a model file is detected; properties/ shows that bits are kept."""

import numpy as np
import pytest

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.runs.model_file import load_model, save_model


def test_a_missing_file_names_the_others(tmp_path):
  save_model(tmp_path / 'client_7.npz', {'bias': np.ones(2)}, {})
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
