"""PFLlib's Fashion-MNIST, Dir(0.1): 20 clients, 2,000 rounds, one file for all.

  python experiments/main.py --config=configs/pfllib.py:fedavg \\
      --workdir=runs/pfllib_fedavg

Published (pfllib/1, best-test-round): 85.85 +- 0.19

on all tests together, in the best round by TEST accuracy: `together` of
`test_best` in result.json, and `pooled` of a view is that of the last round.
--config.select=validation --config.validation_fraction=0.1 chooses a round
without tests. --config.seed=1 gives the sizes of clients that TsingZ0/DBE has
made public.

Another word after the colon is another method. local_only, which is not
published there, is the same training alone. Not stated beside the table, and
ours: mu of FedProx, lambda of Ditto, alpha of APFL, and all of FedAMP, FedALA,
FedCP, FedDBE, FedFomo, FedProto and GPFL (those of their files here); pFedMe's
are of its paper; FedBABU's ten epochs of fine-tuning, after the last round
alone, are the default of PFLlib's code. Differs from that code: the last batch
of an epoch is trained on, too.
"""

from configs import common

PROTOCOL = {
  'dataset': 'fashion_mnist',
  'preprocessing': 'signed',
  'model': 'fedavg_cnn',
  'test_partition': 'merged',
  'test_fraction': 0.25,
  'partition': 'dirichlet_capped',
  'dirichlet_beta': 0.1,
  'dirichlet_min_size': 40,
  'num_clients': 20,
  'client_fraction': 1.0,
  'rounds': 2000,
  'local_epochs': 1,
  'batch_size': 10,
  'learning_rate': 0.005,
  'lr_milestones': (),
  'momentum': 0.0,
  'aggregation': 'examples',
  'eval_every': 1,  # print is the best of all rounds
  'checkpoint_every': 50,
}
FINETUNE = {
  'epochs': (10,),
  'batch_size': 10,
  'learning_rate': 0.005,
  'momentum': 0.0,
}
# The view that is printed, of each method; and what is not the default.
EXPERIMENTS = {
  'apfl': ('personal', {}),
  'ditto': ('personal', {}),
  'fedala': ('personal', {}),
  # alpha / sigma (S - 1) is 1.9, of PFLlib's defaults, alphaK = sigma = 1, 19.
  'fedamp': ('personal', {}),
  'fedavg': ('initial', {}),
  'fedbabu': (
    'finetuned',
    {'eval_every': 0, 'eval_views': ('initial',), 'finetune': FINETUNE},
  ),
  'fedcp': ('personal', {}),
  'feddbe': ('personal', {}),
  'fedfomo': ('personal', {}),
  'fedper': ('initial', {}),
  'fedprox': ('initial', {}),
  'fedproto': ('prototypes', {}),
  'fedrep': ('initial', {'hp': {'momentum': 0.0}}),
  'fedrod': ('personal', {}),
  'gpfl': ('personal', {}),
  'local_only': ('personal', {}),
  'per_fedavg': ('adapted', {'finetune': {'batch_size': 10}}),
  'pfedme': ('personal', {'hp': {'inner_lr': 0.01, 'lam': 15.0}}),
}


def get_config(arg=''):
  method, arg = common.choose(arg, EXPERIMENTS, default='fedavg')
  view, changes = EXPERIMENTS[method]
  own = {'algorithm': method, 'views': (view,), 'eval_views': (view,)}
  return common.base(arg, **PROTOCOL | own | changes)
