"""Where the official archives are: address, size and SHA-256 of each.

Those of all sets but Tiny-ImageNet are the ones that TensorFlow Datasets checks
(`url_checksums/` and `checksums.tsv` in its package, 4.9.10), so that its sets
and ours are made of the same bytes. It has no Tiny-ImageNet: the address is
that of its authors' course, the digest the one that users of it publish.
"""

from typing import NamedTuple


class Archive(NamedTuple):
  """A file on the network, and how to recognise it."""

  url: str
  size: int  # bytes
  sha256: str
  name: str  # of the file on this disk: several sets call theirs train-images


def _idx_archives(prefix: str, base: str, parts) -> tuple[Archive, ...]:
  """Return the four archives of MNIST's format: (x, y) train, (x, y) test."""
  files = [
    f'{split}-{kind}-ubyte.gz'
    for split in ('train', 't10k')
    for kind in ('images-idx3', 'labels-idx1')
  ]
  return tuple(
    Archive(f'{base}/{file}', size, sha256, f'{prefix}-{file}')
    for file, (size, sha256) in zip(files, parts, strict=True)
  )


CIFAR = 'https://www.cs.toronto.edu/~kriz'
SVHN = 'http://ufldl.stanford.edu/housenumbers'
ARCHIVES: dict[str, tuple[Archive, ...]] = {
  'cifar10': (
    Archive(
      f'{CIFAR}/cifar-10-binary.tar.gz',
      170052171,
      'c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd',
      'cifar-10-binary.tar.gz',
    ),
  ),
  'cifar100': (
    Archive(
      f'{CIFAR}/cifar-100-binary.tar.gz',
      168513733,
      '58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec',
      'cifar-100-binary.tar.gz',
    ),
  ),
  'emnist/byclass': (
    Archive(
      'https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip',
      561753746,
      'fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e',
      'emnist-gzip.zip',
    ),
  ),
  'mnist': _idx_archives(
    'mnist',
    'https://storage.googleapis.com/cvdf-datasets/mnist',
    (
      (
        9912422,
        '440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609',
      ),
      (
        28881,
        '3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c',
      ),
      (
        1648877,
        '8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6',
      ),
      (
        4542,
        'f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6',
      ),
    ),
  ),
  'fashion_mnist': _idx_archives(
    'fashion-mnist',
    'http://fashion-mnist.s3-website.eu-central-1.amazonaws.com',
    (
      (
        26421880,
        '3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84',
      ),
      (
        29515,
        'a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845',
      ),
      (
        4422102,
        '346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073',
      ),
      (
        5148,
        '67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5',
      ),
    ),
  ),
  'svhn_cropped': (
    Archive(
      f'{SVHN}/train_32x32.mat',
      182040794,
      '435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8',
      'svhn-train_32x32.mat',
    ),
    Archive(
      f'{SVHN}/test_32x32.mat',
      64275384,
      'cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b',
      'svhn-test_32x32.mat',
    ),
  ),
  'tiny_imagenet': (
    Archive(
      'http://cs231n.stanford.edu/tiny-imagenet-200.zip',
      248100043,
      '6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821',
      'tiny-imagenet-200.zip',
    ),
  ),
}
# What a command line may say instead.
SHORT_NAMES = {'emnist': 'emnist/byclass', 'svhn': 'svhn_cropped'}
