"""Download image sets, check them, and write what runs read:

  fedjax-pfl prepare cifar10 cifar100 --data_dir=DIR

It also knows emnist, mnist, fashion_mnist, svhn and tiny_imagenet. Archives
come from the addresses of their authors, are compared with known SHA-256
digests, and are kept in DIR/downloads. The same command fetches what is
missing, and leaves a set that is there as it is. Without --data_dir:
$TFDS_DATA_DIR, or else ~/tensorflow_datasets, where runs look, too. TensorFlow
is not needed.

  fedjax-pfl prepare fashion_mnist --idx_files=FOLDER --data_dir=DIR

This takes the four files of mnist or fashion_mnist from a folder, gzipped or
not: of another library, or of Debian's package dataset-fashion-mnist.

  fedjax-pfl prepare shakespeare --data_dir=DIR
  fedjax-pfl prepare femnist --leaf=FOLDER --data_dir=DIR

The first takes the tiny Shakespeare from the network, or the play in
--text=FILE. The second takes femnist, shakespeare or sent140 as LEAF's scripts
have written it.

  fedjax-pfl prepare wisdm --from=FOLDER --data_dir=DIR

This takes a set whose clients exist (brca, wisdm, spoken_digits, pacs,
office_caltech, landmine, amazon_reviews, reuters_c50, beijing_air, parkinsons)
from the files of its release, and prints how runs read it. --dataset=wisdm
says the same as wisdm.

  fedjax-pfl prepare femnist --to=FOLDER --data_dir=DIR

This writes a set that runs read, and that says who holds an example (also npz,
folder, pfllib with their --data_dir), as a folder of clients, which runs map
into memory: --config.dataset=clients --config.data_dir=FOLDER.
"""

import sys

import commandline
from absl import flags

DATA_DIR = flags.DEFINE_string(
  'data_dir', '', 'the folder of the image sets; runs take --config.data_dir'
)
IDX_FILES = flags.DEFINE_string(
  'idx_files', '', 'a folder with the four files of the set: no download'
)
LEAF = flags.DEFINE_string(
  'leaf', '', "a folder with LEAF's all_data*.json, or with its train and test"
)
TEXT = flags.DEFINE_string('text', '', 'the file of a play, for shakespeare')
FOLDER = flags.DEFINE_string(
  'from', '', 'a folder with the files of a set whose clients exist'
)
TO = flags.DEFINE_string(
  'to', '', 'a new folder, of clients that runs map into memory'
)


def main(names):
  from experiments.natural import sets
  from fedjax_pfl.data.preparation.prepare import prepare, prepare_clients

  if TO.value:
    prepare_clients(names, DATA_DIR.value, TO.value)
    return
  if FOLDER.value or {*sets.SETS} & {*names}:
    sets.prepare(names, FOLDER.value, DATA_DIR.value)
    return
  files = {'idx_files': IDX_FILES, 'leaf': LEAF, 'text': TEXT}
  files = {name: flag.value for name, flag in files.items()}
  prepare(names, DATA_DIR.value, **files)


if __name__ == '__main__':
  sys.argv = [word.removeprefix('--dataset=') for word in sys.argv]
  commandline.run(main, arguments='the names of image sets, such as cifar10')
