"""The FedBABU paper's EMNIST by classes with the 3convNet (Table 19).

  fedjax-pfl train --config=fedbabu_emnist \\
      --workdir=runs/fedbabu_emnist

Published (fedbabu/19, personalised): 95.96 +- 5.00

FedBABU, or FedAvg with :fedavg; 6 shards, f = 0.1 and tau = 10. 1,488 clients;
the classes differ in size, and so do clients. The paper counts 731,668 training
images; the split that is distributed has 697,932. Wall time: not measured.
"""

from configs import methods

EXPERIMENTS = 'fedavg', 'fedbabu'


def get_config(arg=''):
  return methods.fedbabu_paper(arg, 'emnist', EXPERIMENTS)
