"""The FedBABU paper's CIFAR-100 with MobileNet (Tables 1, 3, 5, 7, 9 and 22).

  python experiments/main.py --config=configs/fedbabu_cifar100.py \\
      --workdir=runs/fedbabu_cifar100

FedBABU; another method as a word after the colon, fedbabu_cifar100.py:ditto.
Mean and std over clients with 10 shards, f = 0.1 and tau = 10:

Published (fedbabu/3)  initial
  fedbabu     18.50 +- 7.82
  fedavg      14.40 +- 5.64

Published (fedbabu/5)  personalised
  fedbabu     66.32 +- 7.02
  fedavg      62.67 +- 6.52
  ditto       14.24 +- 15.67  --config.hp.protocol=released
  fedper      59.50 +- 7.33   --config.hp.protocol=released
  fedrep      34.30 +- 7.84   --config.hp.protocol=released
  per_fedavg  9.17 +- 6.95
  local_only  61.52 +- 7.22
  local_only  28.02 +- 4.01   --config.shards_per_client=50
  local_only  20.60 +- 3.15   --config.shards_per_client=100

Published (fedbabu/7)  initial
  fedprox     13.62 +- 7.73
  fedprox     15.66 +- 8.29   --config.hp.trainable=body

Published (fedbabu/7)  personalised
  fedprox     43.48 +- 9.32
  fedprox     67.15 +- 7.10   --config.hp.trainable=body

Ours, FedBABU, seed 0: 18.14 and 66.74 (results/summary.csv). trainable=body is
FedProx + FedBABU. Settings of FedProx that are not stated must have differed:
mu = 0.01 alone gives nearly FedAvg's numbers. LG-FedAvg began with FedAvg's
run, of the same settings and seed:

  python experiments/main.py --config=configs/fedbabu_cifar100.py:fedavg \\
      --workdir=runs/fedavg_cifar100
  python experiments/main.py --config=configs/fedbabu_cifar100.py:lg_fedavg \\
      --config.init_from=runs/fedavg_cifar100 --config.hp.train_fedavg=False \\
      --config.hp.protocol=released --workdir=runs/lg_fedavg_cifar100_after

Published (fedbabu/5, personalised): 25.04 +- 12.02

configs/methods.py says what protocol=released and the tests of each method are.

  centralized  curves (Figures 2 and 3), the line initial/accuracy of each
               epoch; also --config.hp.trainable=body

Table 9 has such a model after 10 epochs, which clients then fine-tune:

  python experiments/main.py --config=configs/fedbabu_cifar100.py:centralized \\
      --config.total_epochs=10 '--config.lr_milestones=()' \\
      --workdir=runs/full10
  python experiments/main.py --config=configs/fedbabu_cifar100.py:fedavg \\
      --config.init_from=runs/full10 --config.rounds=0 \\
      --config.finetune.epochs=1,2,3,4,5 --config.views=initial,finetuned \\
      --workdir=runs/full10_s10

Published (fedbabu/9, initial): 25.46 +- 6.23
Published (fedbabu/9, personalised): 50.32 +- 7.05

after 0 and 5 epochs. The other half of the table has --config.hp.trainable=body
in the first command of the two.

Memory of local-only: 100 models with their momenta, 2.6 GB, in each of two
checkpoints, too. Wall time on 2 CPU cores: FedBABU 1.1 hours, 66.74 +- 6.88
personalised and 18.14 +- 6.95 initial (results/summary.csv); the other methods
were not run, on a CPU or a GPU. Local-only takes five times the images.
"""

from configs import methods

EXPERIMENTS = methods.OF_FEDBABU


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'cifar100')
