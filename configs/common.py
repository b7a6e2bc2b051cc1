"""Defaults of all fields, the argument of a config, and the list of configs.

  --config=configs/fedbabu_cifar10.py         the paper's setting
  --config=configs/fedbabu_cifar10.py:quick   the same in about a minute
  --config=configs/digits.py:fedprox,quick    one of several in a file

A config states what differs from `base`. Any field can be given on the command
line: --config.rounds=5. The package computes derived values after that.
"""

import importlib
import pathlib
from collections.abc import Collection

from ml_collections import config_dict

FOLDER = pathlib.Path(__file__).parent
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
  if choose(arg)[1]:
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


def choose(
  arg: str, experiments: Collection[str] = (), default: str = ''
) -> tuple[str, str]:
  """Return the experiment that a config argument names, and 'quick' or ''.

  >>> choose('fedprox,quick', ['fedbabu', 'fedprox'], default='fedbabu')
  ('fedprox', 'quick')
  """
  words = arg.split(',') if arg else []
  named = [word for word in words if word in experiments]
  rest = [word for word in words if word not in experiments]
  if len(named) > 1 or rest not in ([], [QUICK]):
    from fedjax_pfl.core.errors import bad_input

    unknown = [word for word in rest if word != QUICK]
    several = 'an experiment, quick, or both with a comma between'
    raise bad_input(
      'config argument',
      got=unknown[0] if unknown else arg,
      expected=several if experiments else 'nothing or quick',
      choices=[*experiments, QUICK],
      cause='a typing error after the colon',
    )
  return (*named, default)[0], ','.join(rest)


def config_files() -> list[pathlib.Path]:
  """Return the files of this folder that --config takes, by name."""
  files = sorted(FOLDER.glob('*.py'))
  return [path for path in files if '\ndef get_config(' in path.read_text()]


def available() -> tuple[str, ...]:
  """Return the names of all configs: .. 'digits:apfl', .. 'fedbabu_cifar10' ..

  The word after the colon is the argument, one of the file's EXPERIMENTS.
  """
  names = []
  for path in config_files():
    module = importlib.import_module(f'configs.{path.stem}')
    arguments = getattr(module, 'EXPERIMENTS', ())
    names += [f'{path.stem}:{arg}' for arg in arguments] or [path.stem]
  return tuple(names)


def load(name: str, quick: bool = False) -> config_dict.ConfigDict:
  """Return the config 'FILE' or 'FILE:ARGUMENT'."""
  stem, _, arg = name.partition(':')
  words = [*filter(None, [arg]), *[QUICK] * quick]
  return importlib.import_module(f'configs.{stem}').get_config(','.join(words))
