"""The FedBABU paper's CIFAR-10 with the 4convNet (Tables 12 and 13).

  fedjax-pfl train --config=fedbabu_cifar10:fedbabu \\
      --config.shards_per_client=5 --workdir=runs/fedbabu_s5

Published (fedbabu/12, initial): 55.55 +- 9.90
Published (fedbabu/13, personalised): 80.99 +- 7.64

mean and std over clients, f = 0.1 and tau = 10. Another word after the colon is
another method; configs/methods.py says which need --config.hp.protocol=released
and what the tests of each are. All printed numbers, one training a cell:

  fedjax-pfl reproduce --table=fedbabu/13 --dry-run

LG-FedAvg began with FedAvg's run, of the same settings and seed:

  fedjax-pfl train --config=fedbabu_cifar10:fedavg \\
      --config.shards_per_client=5 --workdir=runs/fedavg_s5
  fedjax-pfl train --config=fedbabu_cifar10:lg_fedavg \\
      --config.shards_per_client=5 --config.init_from=runs/fedavg_s5 \\
      --config.hp.train_fedavg=False --config.hp.protocol=released \\
      --workdir=runs/lg_fedavg_s5_after

Published (fedbabu/13, personalised): 55.19 +- 13.91

FedProx has no number here; with mu = 0.01 expect nearly FedAvg's, and FedProx +
FedBABU is --config.hp.trainable=body. Centralised training has curves (Figures
4 and 5), the line initial/accuracy of each epoch; also with trainable=body.

These are the stated 320 epochs. With half of them, --config.total_epochs=160,
FedBABU, FedAvg, FedPer and LG-FedAvg agree with the published numbers
(docs/reproduction.md, "What print leaves open").

Wall time on 2 quiet CPU cores: 12 minutes for FedAvg and FedBABU; more for
Ditto and FedRep; an hour for local-only, which takes five times the images.
"""

from configs import methods

EXPERIMENTS = methods.OF_FEDBABU


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'cifar10')
