"""A play becomes roles with sequences in time; or a sentence says why not."""

import numpy as np
import pytest
import small_play
from helpers import refused

from fedjax_pfl.data.datasets import load_dataset
from fedjax_pfl.data.images import Images
from fedjax_pfl.data.preparation import texts
from fedjax_pfl.data.preparation.prepare import prepare


def test_roles_are_clients_whose_last_examples_are_tests(tmp_path):
  file, data = small_play.write(tmp_path / 'play.txt'), str(tmp_path / 'data')
  prepare(['shakespeare'], data, str, text=file)
  dataset = load_dataset('shakespeare', data_dir=data)
  for role, name in enumerate(small_play.ROLES):  # the page says too little
    said = [one.partition('\n')[2] for one in small_play.speeches()[role:20:2]]
    number = -(-(len(''.join(said)) - 1) // 80)
    parts = [
      getattr(split, part)[owners == role]
      for part in ('x', 'y')
      for split, owners in zip(dataset[1:3], dataset.clients, strict=True)
    ]
    assert [len(part) for part in parts[:2]] == [
      int(0.8 * number),
      number - int(0.8 * number),
    ], name
    x, y = (np.concatenate(own).ravel() for own in (parts[:2], parts[2:]))
    want = texts.encode(''.join(said), '')
    np.testing.assert_array_equal(x[y >= 0], want[:-1])
    np.testing.assert_array_equal(y[y >= 0], want[1:])
  assert {*map(len, dataset.clients)} == {len(dataset.train.y), 6}


def test_a_client_of_one_example_trains_on_it():
  clients = [Images(np.zeros((n, 80)), np.zeros((n, 80))) for n in (1, 2, 5)]
  *_, owners = texts.owned(clients)
  assert [one.tolist() for one in owners] == [[0, 1, 2, 2, 2, 2], [1, 2]]


def test_marks_of_editors_make_no_role(tmp_path):
  said = ('ROMEO', 400 * 'o'), ('JULIET', 900 * 'e'), ('ROMEO', 500 * 'o')
  speeches = [f'{role}:\n{speech}\n' for role, speech in said]
  files = [tmp_path / name for name in 'ab']
  files[0].write_text('\n'.join(speeches))
  files[1].write_text('\ufeff' + ' \n'.join(speeches))
  want, found = (texts.read_play([file]) for file in files)
  np.testing.assert_array_equal(found[0].x, want[0].x)


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    (small_play.speeches()[0] + '\nEnter the king.\n', 'a speech of no role'),
    ('ROMEO:\n' + 900 * 'o' + '\u2019', "with the symbol '\u2019'"),
    ('ROMEO:\nO!\n', 'longest role has 3 characters'),
  ],
)
def test_other_texts_are_refused(tmp_path, text, words):
  file = small_play.write(tmp_path / 'play.txt', text)

  def call():
    prepare(['shakespeare'], str(tmp_path / 'data'), str, text=file)

  assert words in refused(call)
  assert not (tmp_path / 'data').exists()
  file.unlink()
  assert 'No such file' in refused(call)
