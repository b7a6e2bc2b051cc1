"""Centralised training on CIFAR-100, MobileNet (FedBABU paper, Figs 2 and 3).

  python experiments/main.py --config=configs/centralized_cifar100.py \\
      --config.hp.trainable=body --workdir=runs/centralized_body

The figures have curves, no numbers: the line initial/accuracy of each epoch.
Wall time: not measured.

Table 9 has such a model after 10 epochs, which clients then fine-tune:

  python experiments/main.py --config=configs/centralized_cifar100.py \\
      --config.total_epochs=10 '--config.lr_milestones=()' \\
      --workdir=runs/full10
  python experiments/main.py --config=configs/fedavg_cifar100.py \\
      --config.init_from=runs/full10 --config.rounds=0 \\
      --config.finetune.epochs=1,2,3,4,5 --config.views=initial,finetuned \\
      --workdir=runs/full10_s10

Published (fedbabu/9, initial): 25.46 +- 6.23
Published (fedbabu/9, personalised): 50.32 +- 7.05

with 10 shards a client, after 0 and 5 epochs. The other half of the table has
--config.hp.trainable=body in the first command of the two.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'centralized', 'cifar100')
