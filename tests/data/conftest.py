"""A small data set in the form that tfds prepares, written by hand.

tfds itself serialises with TensorFlow; its protocol buffers and array_record
do not need it.
"""

import io
import json
import random

import pytest
from PIL import Image


@pytest.fixture
def write_prepared():
  """Return a function that writes {split: (x, y)} under data_dir/name."""
  return _write_prepared


def _write_prepared(data_dir, name, splits, version='3.0.2', ids=False):
  import tensorflow_datasets as tfds
  from array_record.python import array_record_module

  folder = data_dir / name / version
  folder.mkdir(parents=True)
  x, y = splits['train']
  features = {
    'image': tfds.features.Image(shape=x.shape[1:]),
    'label': tfds.features.ClassLabel(num_classes=int(y.max()) + 1),
  }
  if ids:
    features['id'] = tfds.features.Text()
  tfds.features.FeaturesDict(features).save_config(folder)
  stem = name.split('/')[0]
  for split, (x, y) in splits.items():
    file = f'{stem}-{split}.array_record-00000-of-00001'
    writer = array_record_module.ArrayRecordWriter(
      str(folder / file), 'group_size:1'
    )
    for row in _order(len(y), shuffled=ids):
      name_of_row = f'{split}_{row:05}' if ids else None
      writer.write(_serialise(x[row], int(y[row]), name_of_row))
    writer.close()
  info = {
    'name': stem,
    'version': version,
    'fileFormat': 'array_record',
    'splits': [
      {
        'name': split,
        'shardLengths': [str(len(y))],
        'numBytes': '1',
        'filepathTemplate': '{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}',
      }
      for split, (_, y) in splits.items()
    ],
  }
  (folder / 'dataset_info.json').write_text(json.dumps(info))
  return folder


def _order(size, shuffled):
  rows = list(range(size))
  if shuffled:
    random.Random(0).shuffle(rows)
  return rows


def _serialise(x, y, identity):
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
