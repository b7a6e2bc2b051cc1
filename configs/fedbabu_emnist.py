"""FedBABU on EMNIST by classes with the 3convNet (FedBABU paper, Table 19).

  python experiments/main.py --config=configs/fedbabu_emnist.py \\
      --workdir=runs/fedbabu_emnist

1,488 clients, 6 shards each; the classes differ in size, and so do clients.
Published for shards_per_client=6, mean and std: 95.96 +- 5.00 personalised. The
paper counts 731,668 training images; the split that is distributed has 697,932.
Wall time: not measured (the images are not part of the installation).
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedbabu', 'emnist')
