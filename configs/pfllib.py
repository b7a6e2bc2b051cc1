"""PFLlib's protocol: on a folder of its scripts, or on the sets of its page.

  fedjax-pfl train --config=pfllib:fedala --config.data_dir=FOLDER \\
      --workdir=runs/fedala

A METHOD alone is for a folder (docs/howto/from_pfllib.md), with the clients and
tests that it has, and by the code of today: any method that both have. With a
SET it is of the page, whose numbers are, as it says, of older code:

  fedjax-pfl train --config=pfllib:fashion_mnist,fedavg \\
      --workdir=runs/pfllib_fedavg

Published (pfllib/1, best-test-round): 85.85 +- 0.19

  pfllib.py:cifar100,fedala               or cifar10, tiny_imagenet
  pfllib.py:cifar100,pathological,fedala  10 classes a client; of ten classes 2,
                                          of Tiny-ImageNet's 20

CIFAR-10 is in no table of that page. Tiny-ImageNet is its training images
alone. The number above is on all tests together, in the best round by TEST
accuracy: `together` of `test_best` in result.json, and `pooled` of a view is
that of the last round. --config.select=validation
--config.validation_fraction=0.1 chooses a round without tests. --config.seed=1
gives the sizes of clients that TsingZ0/DBE has made public; the pathological
division is bit by bit that of its scripts for the seed that they take,
--config.seed=1.

local_only, which is not published there, is the same training alone. The
authors tune by a grid on each set (PFLlib#66, #183) and print no choice, so
these are ours: mu of FedProx, lambda of Ditto, alpha of APFL, and all of
FedAMP, FedALA, FedCP, FedDBE, FedFomo, FedProto and GPFL (those of their files
here); pFedMe's are of its paper; FedBABU's ten epochs of fine-tuning, after the
last round alone, are the default of PFLlib's code. Differs from that code: the
last batch of an epoch is trained on, too.
"""

from configs import common

PROTOCOL = {
  'preprocessing': 'signed',
  'model': 'fedavg_cnn',
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
PRACTICAL = {
  'partition': 'dirichlet_capped',
  'dirichlet_beta': 0.1,
  'dirichlet_min_size': 40,
}
TESTS = {'test_fraction': 0.25}
MERGED = TESTS | {'test_partition': 'merged'}
# Its scripts leave the validation images out.
TINY = TESTS | {'dataset': 'tiny_imagenet', 'test_partition': 'split'}
# The data set, and the classes of a client in the pathological division.
SETS = {
  'fashion_mnist': ({'dataset': 'fashion_mnist', **MERGED}, 2),
  'cifar10': ({'dataset': 'cifar10', **MERGED}, 2),
  'cifar100': ({'dataset': 'cifar100', **MERGED}, 10),
  'tiny_imagenet': (TINY, 20),
}
# Its clients are those of the files; all have tests.
OF_FOLDER = {
  'dataset': 'pfllib',
  'partition': 'natural',
  'test_partition': 'same',
  'num_clients': 0,
  'norm_statistics': 'batch',
}
PATHOLOGICAL = 'pathological'
PFEDME = {'hp': {'inner_lr': 0.01, 'lam': 15.0}}
# The view that is printed, of each method; and what is not the default.
METHODS = {
  **dict.fromkeys(('apfl', 'ditto', 'fedala'), ('personal', {})),
  # alpha / sigma (S - 1) is 1.9, of PFLlib's defaults, alphaK = sigma = 1, 19.
  'fedamp': ('personal', {}),
  'fedavg': ('initial', {}),
  'fedbabu': (
    'finetuned',
    {'eval_every': 0, 'eval_views': ('initial',), 'finetune': FINETUNE},
  ),
  **dict.fromkeys(('fedcp', 'feddbe', 'fedfomo'), ('personal', {})),
  **dict.fromkeys(('fedper', 'fedprox'), ('initial', {})),
  'fedproto': ('prototypes', {}),
  'fedrep': ('initial', {'hp': {'momentum': 0.0}}),
  **dict.fromkeys(('fedrod', 'gpfl', 'local_only'), ('personal', {})),
  'per_fedavg': ('adapted', {'finetune': {'batch_size': 10}}),
  'pfedme': ('personal', PFEDME),
}
# Of a folder: as the code does, and methods of which no number is published.
AS_CODED = METHODS | {
  'apfl': ('personal', {'hp': {'protocol': 'pfllib'}}),
  'fedbabu': (
    'finetuned',
    # A round more than it evaluates.
    METHODS['fedbabu'][1]
    | {'hp': {'finetune_from': 'trained'}, 'rounds': 2001},
  ),
  'fedproto': ('prototypes', {'hp': {'protocol': 'pfllib'}}),
  # It scores the global model, and the decay is hidden in its optimiser.
  'pfedme': ('initial', PFEDME | {'weight_decay': 0.001}),
  **dict.fromkeys(('fd', 'fedas'), ('personal', {})),
  **dict.fromkeys(('fedkd', 'fml'), ('personal', {'clip_norm': 10.0})),
  **dict.fromkeys(('fedbn', 'feddyn', 'fedgen', 'fedgh'), ('initial', {})),
  **dict.fromkeys(('fedlc', 'fedntd', 'fedpac', 'lg_fedavg'), ('initial', {})),
  **dict.fromkeys(('moon', 'scaffold'), ('initial', {})),
}
# By name: all methods on Fashion-MNIST, and FedAvg on every set.
EXPERIMENTS = (
  *(f'fashion_mnist,{method}' for method in METHODS),
  *(f'{name},fedavg' for name in SETS if name != 'fashion_mnist'),
  *(f'{name},{PATHOLOGICAL},fedavg' for name in SETS),
)


def data_of(words):
  """Return the fields of the data that are named, and the other words."""
  name = next((word for word in words if word in SETS), 'fashion_mnist')
  images, classes = SETS[name]
  division = PRACTICAL
  if PATHOLOGICAL in words:
    division = {'partition': 'pathological_uneven'}
    division['classes_per_client'] = classes
  rest = [word for word in words if word and word not in (name, PATHOLOGICAL)]
  return images | division, ','.join(rest)


def get_config(arg=''):
  data, rest = data_of(arg.split(','))
  methods = METHODS
  if not {*arg.split(',')} & {*SETS, PATHOLOGICAL}:
    data, methods = OF_FOLDER, AS_CODED
  method, quick = common.choose(rest, methods, default='fedavg')
  view, changes = methods[method]
  own = {'algorithm': method, 'views': (view,), 'eval_views': (view,)}
  return common.base(quick, **PROTOCOL | data | own | changes)
