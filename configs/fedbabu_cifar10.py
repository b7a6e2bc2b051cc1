"""The FedBABU paper's CIFAR-10 with the 4convNet (Tables 12 and 13).

  python experiments/main.py --config=configs/fedbabu_cifar10.py:fedbabu \\
      --config.shards_per_client=5 --workdir=runs/fedbabu_s5

FedBABU by default; another word after the colon is another method. Mean and std
over clients, f = 0.1 and tau = 10:

Published (fedbabu/12)  initial
  fedbabu     55.55 +- 9.90
  fedavg      46.32 +- 10.52

Published (fedbabu/13)  personalised
  fedbabu     80.99 +- 7.64
  fedavg      74.29 +- 8.29
  ditto       58.66 +- 12.51  --config.hp.protocol=released
  fedper      74.92 +- 8.32   --config.hp.protocol=released
  fedrep      68.71 +- 10.47  --config.hp.protocol=released
  per_fedavg  47.48 +- 13.76
  local_only  68.79 +- 13.38
  local_only  55.40 +- 11.78  --config.shards_per_client=10
  local_only  90.85 +- 9.10   --config.shards_per_client=2

LG-FedAvg began with FedAvg's run, of the same settings and seed:

  python experiments/main.py --config=configs/fedbabu_cifar10.py:fedavg \\
      --config.shards_per_client=5 --workdir=runs/fedavg_s5
  python experiments/main.py --config=configs/fedbabu_cifar10.py:lg_fedavg \\
      --config.shards_per_client=5 --config.init_from=runs/fedavg_s5 \\
      --config.hp.train_fedavg=False --config.hp.protocol=released \\
      --workdir=runs/lg_fedavg_s5_after

Published (fedbabu/13, personalised): 55.19 +- 13.91

configs/methods.py says what protocol=released and the tests of each method are.
Two methods have no number on CIFAR-10:

  fedprox      with mu = 0.01 expect nearly FedAvg's; FedProx + FedBABU is
               --config.hp.trainable=body
  centralized  curves (Figures 4 and 5), the line initial/accuracy of each
               epoch; also --config.hp.trainable=body

Wall time on 2 CPU cores: about 35 minutes for FedAvg, FedBABU and Ditto; 18 to
95 for FedPer and 20 to 51 for FedRep, alone and beside other work; 16 for
Per-FedAvg (40 gradients where FedAvg has 100); 43 for LG-FedAvg after FedAvg's;
1 to 2 hours for local-only, five times the images of FedAvg; centralised
training, 8 million images, was not measured.
"""

from configs import methods

EXPERIMENTS = methods.OF_FEDBABU


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'cifar10')
