"""Download image sets, check them, and write what runs read:

  python experiments/prepare.py cifar10 cifar100 --data_dir=DIR

and any of emnist, mnist, fashion_mnist, svhn, tiny_imagenet. Archives come from
the addresses of their authors, are compared with known SHA-256 digests, and are
kept in DIR/downloads. The same command fetches what is missing, and leaves a
set that is there as it is. Without --data_dir: $TFDS_DATA_DIR, or else
~/tensorflow_datasets, where runs look, too. TensorFlow is not needed.
"""

import commandline
from absl import flags

DATA_DIR = flags.DEFINE_string(
  'data_dir', '', 'the folder of the image sets; runs take --config.data_dir'
)


def main(names):
  from fedjax_pfl.data.preparation.prepare import prepare

  prepare(names, DATA_DIR.value)


if __name__ == '__main__':
  commandline.run(main, words='the names of image sets, such as cifar10')
