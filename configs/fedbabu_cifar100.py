"""The FedBABU paper's CIFAR-100 with MobileNet (Tables 1, 3, 5, 7, 9 and 22).

  fedjax-pfl train --config=fedbabu_cifar100 \\
      --workdir=runs/fedbabu_cifar100

Published (fedbabu/3, initial): 18.50 +- 7.82
Published (fedbabu/5, personalised): 66.32 +- 7.02

mean and std over clients with 10 shards, f = 0.1 and tau = 10. Ours, seed 0:
18.14 +- 6.95 and 66.74 +- 6.88 (results/summary.csv), in 1.1 hours on 2 CPU
cores. Another method is a word after the colon, fedbabu_cifar100.py:ditto;
configs/methods.py says which need --config.hp.protocol=released. LG-FedAvg
begins with FedAvg's run, as in configs/fedbabu_cifar10.py.

FedProx + FedBABU is --config.hp.trainable=body. Settings of FedProx that are
not stated must have differed: mu = 0.01 alone gives nearly FedAvg's numbers.
Centralised training has curves (Figures 2 and 3); also with trainable=body.
Table 9 has such a model after 10 epochs, which clients then fine-tune:

  fedjax-pfl train --config=fedbabu_cifar100:centralized \\
      --config.total_epochs=10 '--config.lr_milestones=()' \\
      --workdir=runs/full10
  fedjax-pfl train --config=fedbabu_cifar100:fedavg \\
      --config.init_from=runs/full10 --config.rounds=0 \\
      --config.finetune.epochs=1,2,3,4,5 --config.views=initial,finetuned \\
      --workdir=runs/full10_s10

Published (fedbabu/9, initial): 25.46 +- 6.23
Published (fedbabu/9, personalised): 50.32 +- 7.05

Memory of local-only: 100 models with their momenta, 2.6 GB, in each of two
checkpoints, too; it takes five times the images.
"""

from configs import methods

EXPERIMENTS = methods.OF_FEDBABU


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'cifar100')
