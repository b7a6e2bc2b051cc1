"""What every field of a config has to be; `hp` has the rules of its method."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from fedjax_pfl import algorithms
from fedjax_pfl.client.local_training import AGGREGATIONS
from fedjax_pfl.client.personalization import ADAPT_ON
from fedjax_pfl.data import (
  INPUTS,
  NAMES,
  PARTITIONS,
  PLACEMENTS,
  TEST_PARTITIONS,
)
from fedjax_pfl.evaluation.metrics import SCORINGS
from fedjax_pfl.federated.server_training import SERVER_TRAINABLE
from fedjax_pfl.models.head_init import HEAD_BIASES, HEAD_INITS
from fedjax_pfl.models.ops.conv import CONV_IMPLS
from fedjax_pfl.models.task import MODELS

# The run ends in a sentence, or goes on without such clients.
DIVERGED = ('stop', 'exclude')


class Rule(NamedTuple):
  """What a field has to be."""

  holds: Callable[[Any], bool]
  expected: str
  cause: str
  choices: tuple[Any, ...] | Callable[[], tuple[str, ...]] | None = None


def one_of(choices, expected: str, cause: str = 'a typing error') -> Rule:
  names = tuple(choices)
  return Rule(
    lambda value: isinstance(value, str) and value in names,
    expected,
    cause,
    names,
  )


def at_least(least: int, what: str, cause: str) -> Rule:
  return Rule(
    lambda value: _is_int(value) and value >= least,
    f'a whole number of {what}, {least} or more',
    cause,
  )


def several(holds: Callable[[Any], bool], what: str, cause: str) -> Rule:
  return Rule(
    lambda value: isinstance(value, tuple | list) and all(map(holds, value)),
    what,
    cause,
  )


def yes_or_no(cause: str) -> Rule:
  return Rule(
    lambda value: isinstance(value, bool), 'yes or no', cause, (True, False)
  )


# Keys have 32 bits of a seed: a larger one would be that of another run.
MOST_SEED = 2**32 - 1

RATE = Rule(
  lambda value: _is_number(value) and value > 0,
  'a learning rate above 0',
  'a sign, or a zero too many; 0 would train nothing',
)
MOMENTUM = Rule(
  lambda value: _is_number(value) and 0 <= value < 1,
  'a momentum from 0 to below 1',
  'the learning rate and the momentum interchanged; 1 never slows down',
)
BATCH_SIZE = at_least(
  1, 'examples', '0 or None for "all": write a number that holds all'
)
VIEWS = (
  'names of views, such as "initial" and "finetuned"',
  "a single name: write ('initial',)",
)

# A field of the config that is not here is not a field. `hp` has rules of its
# own: those of the method.
RULES: dict[str, Rule] = {
  'algorithm': Rule(
    lambda value: value in algorithms.available(),
    'the name of a file in fedjax_pfl/algorithms',
    'a typing error, or a method that is not there yet',
    algorithms.available,  # asked when needed: a method may be added meanwhile
  ),
  'init_from': Rule(
    lambda value: _is_path(value),
    'the directory of a finished run as a string; "" is a fresh model',
    'None, a pathlib.Path (write str(path)), or a name that no disk has',
  ),
  'seed': Rule(
    lambda value: _is_int(value) and 0 <= value <= MOST_SEED,
    f'a whole number as a seed, 0 to {MOST_SEED}',
    'a list of seeds: each seed is a run; or a seed made from the time',
  ),
  'dataset': one_of(
    NAMES, 'a known image set', 'a typing error; own images go under "folder"'
  ),
  'data_dir': Rule(
    lambda value: _is_path(value),
    'a path as a string; "" is the default place',
    'None, a pathlib.Path (write str(path)), or a name that no disk has',
  ),
  'max_train_examples': at_least(
    0, 'training images (0 = all)', 'a fraction instead of a number'
  ),
  'preprocessing': one_of(INPUTS, 'a way to make inputs of images'),
  'model': one_of(
    MODELS, 'a known model', 'a typing error, or another name of this model'
  ),
  'head_init': one_of(HEAD_INITS, 'a way to begin the weights of the head'),
  'head_bias': one_of(
    HEAD_BIASES, 'a way to begin the bias of the head', 'a number, or None'
  ),
  'conv_impl': one_of(CONV_IMPLS, 'a way to compute convolutions'),
  'partition': one_of(PARTITIONS, 'a way to deal examples to clients'),
  'num_clients': at_least(
    1, 'clients', 'num_clients and client_fraction interchanged'
  ),
  'shards_per_client': at_least(
    1, 'shards for each client', 'a division that left a fraction'
  ),
  'dirichlet_beta': Rule(
    lambda value: _is_number(value) and value > 0,
    'a finite number above 0',
    '0 for "one class a client": a small number such as 0.01 does that',
  ),
  'dirichlet_min_size': at_least(
    1, 'training examples of the smallest client', 'a share of the examples'
  ),
  'classes_per_client': at_least(
    1, 'classes for each client', 'a share of the classes'
  ),
  'class_clusters': at_least(
    1, 'clusters of classes', 'the classes of a cluster, or a share'
  ),
  'class_families': several(
    lambda value: _is_int(value) and value >= 1,
    'whole numbers of classes, 1 or more; () is one family of all classes',
    'names of classes, or a single number: write (10,)',
  ),
  'min_client_size': at_least(
    1, 'training examples of a client', 'a share of the examples'
  ),
  'max_client_size': at_least(
    2, 'training examples that no client reaches', 'a share of the examples'
  ),
  'group_size': at_least(
    1, 'clients of one size', 'groups were meant: clients / groups'
  ),
  'size_step': Rule(
    lambda value: _is_number(value) and value >= 0,
    'a number of examples, 0 or more',
    'a sign: groups grow; 0 makes all clients equal',
  ),
  'test_partition': one_of(TEST_PARTITIONS, 'a way to divide the test set'),
  'test_shards_per_client': at_least(
    1, 'shards for each client', 'a division that left a fraction'
  ),
  'test_fraction': Rule(
    lambda value: _is_number(value) and 0 < value < 1,
    'a share of the training examples between 0 and 1',
    'a percentage, or a number of examples',
  ),
  'client_fraction': Rule(
    lambda value: _is_number(value) and 0 < value <= 1,
    'a fraction above 0 and up to 1',
    'a percentage, or a number of clients',
  ),
  'total_epochs': at_least(
    1, 'epochs', 'rounds were meant: they have a field of that name'
  ),
  'local_epochs': at_least(
    1, 'epochs', 'steps or a fraction of an epoch instead of whole epochs'
  ),
  'rounds': Rule(
    lambda value: value is None or (_is_int(value) and value >= 0),
    'a whole number of rounds, 1 or more, or None: total / local epochs',
    'epochs, or a fraction, instead of rounds',
  ),
  'batch_size': BATCH_SIZE,
  'learning_rate': RATE,
  'lr_milestones': several(
    lambda value: _is_number(value) and 0 < value < 1,
    'fractions of all rounds, between 0 and 1',
    'rounds instead of fractions, or a single number: write (0.5,)',
  ),
  'lr_decay': Rule(
    lambda value: _is_number(value) and 0 < value <= 1,
    'a factor above 0 and up to 1',
    'what is taken off (0.005) instead of what is left (0.995)',
  ),
  'momentum': MOMENTUM,
  'weight_decay': Rule(
    lambda value: _is_number(value) and value >= 0,
    'a number, 0 or more',
    'a sign: it is a penalty, written as a positive number',
  ),
  'aggregation': one_of(AGGREGATIONS, 'a way to weigh clients'),
  'server_data_fraction': Rule(
    lambda value: _is_number(value) and 0 <= value <= 1,
    'a share of the training examples, from 0 to 1',
    'a percentage, or a number of examples',
  ),
  'server_trainable': one_of(
    SERVER_TRAINABLE, 'a part that the server may train'
  ),
  'finetune.epochs': Rule(
    lambda value: (
      isinstance(value, tuple | list)
      and len(value) > 0
      and all(_is_int(v) and v >= 1 for v in value)
    ),
    'whole numbers of epochs, 1 or more',
    'epoch 0, which is the view "initial"; or a single number: write (5,)',
  ),
  # Whether the model has these layers is asked when the model is known.
  'finetune.trainable': Rule(
    lambda value: isinstance(value, str) and all(value.split('+')),
    "'full', 'body', 'head', or names of layers joined by '+'",
    'a list of layers: write "conv1+bn1"',
  ),
  'finetune.learning_rate': RATE,
  'finetune.momentum': MOMENTUM,
  'finetune.batch_size': BATCH_SIZE,
  'adapt_on': one_of(
    ADAPT_ON, 'the data on which a client adapts before it is evaluated'
  ),
  'views': several(lambda value: isinstance(value, str), *VIEWS),
  'eval_views': several(lambda value: isinstance(value, str), *VIEWS),
  'scoring': one_of(SCORINGS, 'a way to count right answers'),
  'eval_global_model': yes_or_no(
    'the number of tests, or the name of a test set'
  ),
  'eval_every': at_least(
    0, 'rounds (0 = sixteen times in a run)', 'a fraction instead of rounds'
  ),
  'checkpoint_every': at_least(
    0, 'rounds (0 = with every evaluation)', 'minutes instead of rounds'
  ),
  'log_every': at_least(
    0, 'rounds (0 = automatic)', 'a fraction instead of rounds'
  ),
  'save_clients': several(
    lambda value: _is_int(value) and value >= 0,
    'ids of clients, from 0',
    'a single id: write (0,)',
  ),
  'on_divergence': one_of(
    DIVERGED, 'what happens when a client diverges', 'a client id, or yes or no'
  ),
  'clients_per_chunk': Rule(
    lambda value: value == 'auto' or (_is_int(value) and value >= 1),
    '"auto" or a whole number of clients, 1 or more',
    'a fraction, or 0 for "all": write the number of clients',
  ),
  'devices': at_least(
    0, 'devices (0 = all)', 'the name of a device, or a list of their numbers'
  ),
  'clients_placement': one_of(
    PLACEMENTS, 'where what clients hold and keep lives between rounds'
  ),
  'debug': yes_or_no('a word instead of True or False'),
  'quick': yes_or_no('a word; the config argument :quick sets more than this'),
}


def _is_path(value):
  """Return whether a system would look for it; names have 255 bytes."""
  if not isinstance(value, str) or '\0' in value:
    return False
  names = value.encode(errors='replace').split(b'/')
  return max(map(len, names)) <= 255 and len(value) < 4000


def _is_int(value):
  return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value):
  is_number = isinstance(value, int | float) and not isinstance(value, bool)
  return is_number and math.isfinite(value)
