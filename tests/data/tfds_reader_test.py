"""Sets in the form that tfds prepares; these files are written by hand.

tfds itself serialises with TensorFlow; its protocol buffers and array_record
do not need it.
"""

import io
import json
import sys

import numpy as np
import pytest
from PIL import Image

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.data import datasets, prepared

SPLITS = {'train': 1100, 'test': 62}  # more than one chunk is decoded


def write_prepared(root, name, with_ids):
  """Write a set and return its images, in their own order."""
  import tensorflow_datasets as tfds
  from array_record.python import array_record_module

  folder, rng = root / name / '3.0.2', np.random.default_rng(0)
  folder.mkdir(parents=True)
  shape, num_classes, *_ = prepared.PREPARED[name]
  features = {
    'image': tfds.features.Image(shape=shape),
    'label': tfds.features.ClassLabel(num_classes=num_classes),
  } | ({'id': tfds.features.Text()} if with_ids else {})
  tfds.features.FeaturesDict(features).save_config(folder)
  stem, images, infos = name.split('/')[0], {}, []
  for split, size in SPLITS.items():
    images[split] = rng.integers(0, 256, (size, *shape), dtype=np.uint8)
    file = f'{stem}-{split}.array_record-00000-of-00001'
    writer = array_record_module.ArrayRecordWriter(
      str(folder / file), 'group_size:1'
    )
    for row in rng.permutation(size) if with_ids else range(size):
      identity = f'{split}_{row:05}' if with_ids else ''
      writer.write(serialised(images[split][row], row % num_classes, identity))
    writer.close()
    infos.append(
      {
        'name': split,
        'shardLengths': [str(size)],
        'numBytes': '1',
        'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      }
    )
  info = {'name': stem, 'version': '3.0.2', 'splits': infos}
  info['fileFormat'] = prepared.RECORDS
  (folder / 'dataset_info.json').write_text(json.dumps(info))
  return images


def serialised(x, y, identity):
  from tensorflow_datasets.proto import tf_example_pb2

  png = io.BytesIO()
  Image.fromarray(x.squeeze()).save(png, 'PNG')
  example = tf_example_pb2.Example()
  feature = example.features.feature
  feature['image'].bytes_list.value.append(png.getvalue())
  feature['label'].int64_list.value.append(y)
  if identity:
    feature['id'].bytes_list.value.append(identity.encode())
  return example.SerializeToString()


@pytest.mark.parametrize(
  ('name', 'with_ids'),
  [('mnist', False), ('cifar10', True), ('emnist/byclass', False)],
)
def test_a_prepared_set_is_read_in_its_own_order(name, with_ids, tmp_path):
  """Once: the next time a stored copy is. Without TensorFlow."""
  images, log = write_prepared(tmp_path, name, with_ids), []
  more = {'data_dir': str(tmp_path), 'log_fn': log.append}
  for _ in range(2):
    found = datasets.load_dataset(name, **more)
    for split, x in images.items():
      got, classes = getattr(found, split), found.num_classes
      upright = x.swapaxes(1, 2) if name == 'emnist/byclass' else x
      np.testing.assert_array_equal(got.x, upright)
      np.testing.assert_array_equal(got.y, np.arange(len(x)) % classes)
  assert len(log) == 1 and 'tensorflow' not in sys.modules


@pytest.mark.parametrize('form', ['now', 'legacy', 'info'])
def test_modules_that_a_prepared_set_names_are_not_imported(
  form, tmp_path, monkeypatch
):
  monkeypatch.syspath_prepend(tmp_path)
  bait, module = tmp_path / 'imported', f'bait_{form}'
  (tmp_path / f'{module}.py').write_text(f"open({str(bait)!r}, 'w')")
  images = write_prepared(tmp_path, 'mnist', with_ids=False)
  evil = {'pythonClassName': f'{module}.X', 'text': {}}
  folder = tmp_path / 'mnist' / '3.0.2'
  features = json.loads((folder / 'features.json').read_text())
  if form == 'now':
    features['featuresDict']['features']['image'] = evil
  if form == 'legacy':
    features = {'type': f'{module}.X', 'content': {}}
  if form == 'info':
    info = json.loads((folder / 'dataset_info.json').read_text())
    info |= {'features': evil, 'moduleName': module}
    (folder / 'dataset_info.json').write_text(json.dumps(info))
  (folder / 'features.json').write_text(json.dumps(features))
  found = datasets.load_dataset('mnist', data_dir=str(tmp_path))
  np.testing.assert_array_equal(found.test.x, images['test'])
  assert not bait.exists()


def test_the_newest_readable_version_is_found(tmp_path):
  for version, file_format in (
    *(('3.0.2', 'array_record'), ('3.0.10', 'array_record')),
    *(('4.0.0', 'tfrecord'), ('incomplete.X_5.0.0', 'array_record')),
  ):
    folder = tmp_path / 'cifar10' / version
    folder.mkdir(parents=True)
    info = json.dumps({'fileFormat': file_format})
    (folder / 'dataset_info.json').write_text(info)
  found = prepared.find_prepared('cifar10', tmp_path)
  assert found == tmp_path / 'cifar10' / '3.0.10'


def test_damaged_files_are_told(tmp_path):
  write_prepared(tmp_path, 'mnist', with_ids=False)
  file = next(tmp_path.rglob('*-test.array_record*'))
  file.write_bytes(file.read_bytes()[:100])
  message = r'mnist, and while reading .*delete the'
  with pytest.raises(BadInput, match=message):
    datasets.load_dataset('mnist', data_dir=str(tmp_path))
  file.rename(file.with_name(file.name.replace('00001', '00002')))
  with pytest.raises(BadInput, match='not one whole copy'):
    datasets.load_dataset('mnist', data_dir=str(tmp_path))
