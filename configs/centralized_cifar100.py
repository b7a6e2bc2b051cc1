"""Centralised training on CIFAR-100, MobileNet (FedBABU paper, Figs 2 and 3).

  python experiments/main.py --config=configs/centralized_cifar100.py \\
      --config.hp.trainable=body --workdir=runs/centralized_body

The figures have curves, no numbers: the line initial/accuracy of each epoch.
Wall time: not measured.

Table 9 has such a model after 10 epochs, fine-tuned by clients of s shards:

  python experiments/main.py --config=configs/centralized_cifar100.py \\
      --config.total_epochs=10 '--config.lr_milestones=()' --workdir=runs/full10

and then the config fedavg_cifar100.py with --config.init_from=runs/full10
--config.rounds=0 --config.finetune.epochs=1,2,3,4,5 and the views initial,
finetuned_1 to finetuned_4, finetuned.
Published for shards_per_client=10 after 0 and 5 epochs: 25.46 +- 6.23 and 50.32
+- 7.05; with hp.trainable=body 23.86 +- 5.08 and 76.47 +- 5.48.
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'centralized', 'cifar100')
