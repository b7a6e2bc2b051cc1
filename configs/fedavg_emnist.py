"""FedAvg on EMNIST by classes with the 3convNet (FedBABU paper, Table 19).

  python experiments/main.py --config=configs/fedavg_emnist.py \\
      --workdir=runs/fedavg_emnist

Published (fedbabu/19, personalised): 89.83 +- 7.72

with 6 shards a client, f = 0.1 and tau = 10, mean and std. 1,488 clients; the
classes differ in size, and so do clients. The paper counts 731,668 training
images; the split that is distributed has 697,932. Wall time: not measured (the
images are not part of the installation).
"""

from configs import methods


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'fedavg', 'emnist')
