"""The protocol of the FedBN paper's public code: domains are clients.

  fedjax-pfl train --config=fedbn:fedbn \\
      --workdir=runs/fedbn

or another METHOD: fedavg, fedprox, local_only. A domain is a client, and all
take part in each of 100 rounds: an epoch of SGD at 0.01, batches of 32, means
over clients that are not weighted, BatchNorm with running statistics, inputs in
[-1, 1]. By default the five made domains of the 8x8 digits, without a download.
Add --config.dataset=folder --config.data_dir=DIR --config.image_size=28 for
Digits-five, or other domains, in folders DOMAIN/{train,test}/CLASS/.

Differs from that code: `convnet3`, of 64 channels and 3 x 3 filters; it has a
convolutional network with two dense layers more. There mu of FedProx is 0.01,
too; --config.clients_per_domain=4 makes a few clients of a domain.
"""

from configs import common

DOMAINS = {
  'dataset': 'digits_domains',
  'preprocessing': 'signed',
  'model': 'convnet3',
  'norm_statistics': 'running',
  'partition': 'natural',
  'num_clients': 0,  # those of the data
  'client_fraction': 1.0,
  'rounds': 100,
  'local_epochs': 1,
  'batch_size': 32,
  'learning_rate': 0.01,
  'lr_milestones': (),
  'momentum': 0.0,
  'eval_every': 20,
}
INITIAL = {'views': ('initial',), 'eval_views': ('initial',)}
OWN = {
  'fedprox': {'hp': {'mu': 0.01}},
  'local_only': {'views': ('personal',), 'eval_views': ('personal',)},
}
EXPERIMENTS = ('fedavg', 'fedbn', 'fedprox', 'local_only')


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedbn')
  own = INITIAL | OWN.get(method, {})
  return common.base(arg, algorithm=method, **DOMAINS | own)
