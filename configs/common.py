"""The settings that all configs share; a config writes what differs.

  --config=configs/fedbabu_cifar10.py         the paper's setting
  --config=configs/fedbabu_cifar10.py:quick   the same in about a minute

Any field can be given on the command line: --config.rounds=5. What follows
from other fields is computed in the package, after that.
"""

from ml_collections import config_dict

QUICK = 'quick'


def base(arg: str = '', **changes) -> config_dict.ConfigDict:
  """Return the shared defaults with `changes`, shrunk if arg is 'quick'."""
  c = config_dict.ConfigDict()
  c.algorithm = 'fedavg'  # the name of a file in fedjax_pfl/algorithms
  c.hp = config_dict.ConfigDict()  # hyperparameters of its own
  c.init_from = ''  # a run directory: begin with its final global model
  c.seed = 0

  c.dataset = 'cifar10'
  c.data_dir = ''  # default: $TFDS_DATA_DIR, then ~/tensorflow_datasets
  c.max_train_examples = 0  # use the first so many training images; 0 = all
  c.preprocessing = (
    'default'  # crop, flip, mean, std; others: data/transforms.py
  )
  c.model = 'convnet4'
  c.head_init = 'default'  # PyTorch's; others: fedjax_pfl/models/head_init.py
  c.head_bias = 'default'  # random, as PyTorch's; or 'zero'
  c.conv_impl = 'auto'  # of convolutions

  c.partition = 'shards'  # a file in fedjax_pfl/data/partitions
  c.num_clients = 100
  c.shards_per_client = 10  # of one class each, to a client
  c.dirichlet_beta = (
    1.0  # 'dirichlet', 'dirichlet_capped': the smaller, the more uneven
  )
  c.dirichlet_min_size = 10  # 'dirichlet_capped': images of the smallest client
  c.classes_per_client = 2  # 'classes'
  c.group_size = 10  # 'unbalanced': clients of one size
  c.size_step = 50.0  # 'unbalanced': images from one group to the next
  c.class_clusters = 5  # 'semantic': of classes, disjoint
  c.class_families = ()  # 'semantic': sizes; EMNIST's are (10, 26, 26)
  c.min_client_size = 100  # 'semantic': images of a client, from this ..
  c.max_client_size = 800  # .. to below this
  # Or 'independent', 'whole', 'iid'; 'split': of a client's training images.
  c.test_partition = 'same'
  c.test_shards_per_client = (
    100  # to a client, where the test set is 'independent'
  )
  c.test_fraction = 0.2  # of a client's training images, where it is 'split'
  c.client_fraction = 0.1  # of the clients take part in a round

  c.total_epochs = 320  # over a client's data: rounds = total / local
  c.local_epochs = 10
  # Given: total_epochs is not used. 0 with `init_from`: only evaluate.
  c.rounds = config_dict.placeholder(int)
  c.batch_size = 50
  c.learning_rate = 0.1
  c.lr_milestones = (
    0.5,
    0.75,
  )  # to a tenth, from these fractions of all rounds on
  c.lr_decay = 1.0  # eta times this in every round, from the first on
  c.momentum = 0.9
  c.weight_decay = 0.0
  c.aggregation = 'uniform'  # or 'examples': clients weigh n_i
  c.server_data_fraction = (
    0.0  # of all training examples, that the server trains on
  )
  c.server_trainable = 'full'  # what it trains, for an epoch a round; or 'body'

  c.finetune = config_dict.ConfigDict()
  c.finetune.epochs = (5,)  # several: one run, evaluated at each of them
  c.finetune.trainable = 'full'  # or 'body', 'head', layers: 'conv1+bn1'
  c.finetune.learning_rate = 1e-3  # the last learning rate of the rounds
  c.finetune.momentum = 0.9
  c.finetune.batch_size = 50

  # What a client adapts on before it is evaluated. 'test_half': every other one
  # of its tests, and it is evaluated on the rest; for every method alike.
  c.adapt_on = 'train'
  c.views = ('initial', 'finetuned')  # evaluated at the end
  c.eval_views = ('initial',)  # evaluated during the rounds
  # Tests by the batch: 'batches', 'whole_batches': evaluation/metrics.py.
  c.scoring = 'exact'
  c.eval_global_model = (
    False  # evaluate the global model on the whole test set, too
  )
  c.eval_every = 0  # rounds; 0 = sixteen times in a run
  c.checkpoint_every = 0  # rounds; 0 = with every evaluation
  c.log_every = (
    0  # rounds in one compiled call; 0 = 1 on a CPU, else eval_every
  )
  c.save_clients = (0,)  # whose personalised models go to model/

  c.on_divergence = 'stop'  # where numbers are not finite; or 'exclude' clients
  c.clients_per_chunk = 'auto'  # clients side by side
  c.devices = 0  # of each process, that share the clients; 0 = all
  # Their rows; on the 'host', a round is fed those of its cohort.
  c.clients_placement = 'device'
  c.debug = False  # clients in a Python loop; the first bad step is named
  c.quick = False  # synthetic images may stand in
  c.update(changes)
  if arg not in ('', QUICK):
    from fedjax_pfl.core.errors import bad_input

    raise bad_input(
      'config argument',
      got=arg,
      expected='nothing or a known word',
      choices=[QUICK],
      cause='a typing error after the colon',
    )
  if arg == QUICK:
    c.update(
      quick=True,
      num_clients=min(c.num_clients, 10),
      client_fraction=max(c.client_fraction, 0.2),
      max_train_examples=1000,
      min_client_size=min(c.min_client_size, 40),
      max_client_size=min(c.max_client_size, 160),
      rounds=4,
      local_epochs=1,
      eval_every=2,
    )
    c.finetune.epochs = (1,)
  return c


def digits(arg: str = '', **changes) -> config_dict.ConfigDict:
  """Return a first look at a method: 20 clients with 2 shards each."""
  setting = {
    'dataset': 'digits',
    'model': 'convnet3',  # 8x8 pixels allow three poolings
    'num_clients': 20,
    'shards_per_client': 2,
    'client_fraction': 0.25,
    'total_epochs': 80,
    'local_epochs': 5,
    'batch_size': 20,  # a client has about 72 images
    'finetune': {'batch_size': 20},
  }
  return base(arg, **{**setting, **changes})


def superfed(arg: str = '', **changes) -> config_dict.ConfigDict:
  """Return SuperFed's setting for CIFAR-10 (first version), with `changes`."""
  setting = {
    'dataset': 'cifar10',
    'preprocessing': 'unit',
    'model': 'superfed_cnn',
    'partition': 'pathological',
    'num_clients': 100,
    'shards_per_client': 2,
    'test_partition': 'split',  # a fifth of a client's own images
    'eval_global_model': True,  # the server's model: on the 10,000 test images
    'client_fraction': 0.1,
    'rounds': 200,
    'local_epochs': 10,
    'batch_size': 20,
    'learning_rate': 0.01,
    'lr_decay': 0.995,
    'lr_milestones': (),
    'aggregation': 'examples',
  }
  return base(arg, **{**setting, **changes})


def fedconcat(arg: str = '', **changes) -> config_dict.ConfigDict:
  """Return FedConcat's setting for CIFAR-10 (Table 1), with `changes`."""
  setting = {
    'dataset': 'cifar10',
    'preprocessing': 'fedconcat',
    'model': 'simple_cnn',
    'partition': 'classes',  # #C = 2; Dir(0.1): 'dirichlet_capped'
    'num_clients': 40,
    'classes_per_client': 2,
    'eval_global_model': True,
    'client_fraction': 1.0,
    'rounds': 50,
    'local_epochs': 10,
    'batch_size': 64,
    'learning_rate': 0.01,
    'lr_milestones': (),
    'weight_decay': 1e-5,
    'aggregation': 'examples',
    'views': ('initial',),  # a paper about the global model
  }
  return base(arg, **{**setting, **changes})
