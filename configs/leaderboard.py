"""The budget of the leaderboard: what its forms train, in one place.

  python experiments/leaderboard.py                  digits, on two cores
  python experiments/leaderboard.py --form=cifar10   CIFAR-10
  python experiments/leaderboard.py --form=demo      the rates of the demo

For every partition and method: a training for each learning rate of `rates`
and each of the first `tuning_seeds` seeds; the rate with the best accuracy on
validation examples; a training with that rate for the other seeds. All methods
have the same rounds, cohorts and local epochs; some train more in them, as
FedPAC its head. `second_budgets` is for methods that do not count so.
"""

import math

from fedjax_pfl.algorithms import available
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.leaderboard.form import BASELINES, make_form

RATES = 0.003, 0.01, 0.03  # with momentum 0.9, of all forms
# What the grid replaces, where that is not the rate of training and fine-tuning
# alone: the rate of the steps that see the data. FedPAC's head and FedAS's
# alignment keep their own rates at every point of the grid.
RATE_FIELDS = {
  'lg_fedavg': ('learning_rate', 'finetune.learning_rate', 'hp.learning_rate'),
  'pfedme': ('hp.inner_lr',),  # learning_rate is that of the server's pull
}

# The rule by which these predict, where it is not the first view that is found.
OWN_VIEWS = {'fedproto': 'prototypes', 'knn_per': 'neighbours'}
FIVE_SHARDS = {'s=5': {'partition': 'shards', 'shards_per_client': 5}}


def second_budgets(base, examples):
  """Return the fields of methods whose budget is not rounds x local_epochs.

  `examples` are those that a client trains on; it takes part in `share` rounds
  on average.
  """
  rounds, local_epochs = base['rounds'], base['local_epochs']
  share = round(rounds * base['client_fraction'])
  batches = math.ceil(examples / base['batch_size'])  # of a pass over them
  clusters = rounds * 3 // 4
  steps = (rounds - clusters) * local_epochs * batches  # of a client
  cohort = round(base['num_clients'] * base['client_fraction'])
  return {
    # alpha / sigma (cohort - 1) is to be at most 1; alpha / sigma is 0.1 else.
    'fedamp': {'hp': {'alpha': 100 / (cohort - 1)}} if cohort > 11 else {},
    # A reference: one client with all data, as many passes as clients make.
    'centralized': {
      'partition': 'iid',
      'test_partition': 'whole',
      'num_clients': 1,
      'client_fraction': 1.0,
      'rounds': share * local_epochs,
      'local_epochs': 1,
      'views': ('initial',),
    },
    # Its last quarter trains the classifier, 3 steps of a client a round.
    'fedconcat': {
      'rounds': clusters,
      'hp': {'classifier_rounds': steps // 3},
    },
    # A round of all clients comes before its own.
    'feddbe': {'rounds': rounds - 1},
    # The head, then one epoch of the body.
    'fedrep': {'hp': {'head_epochs': local_epochs - 1}},
    # FedAvg, then a quarter as many rounds of its own.
    'lg_fedavg': {'rounds': rounds * 4 // 5},
    # As many epochs as a client of the others trains and fine-tunes.
    'local_only': {
      'client_fraction': 1.0,
      'rounds': share * local_epochs + max(base['finetune']['epochs']),
      'local_epochs': 1,
    },
  }


# Of every run of every form.
PROTOCOL = {
  'aggregation': 'examples',
  'lr_milestones': (),  # constant, and fine-tuning has the same
  'momentum': 0.9,
  'eval_views': (),
  'eval_every': 1_000_000,  # the last round alone is evaluated
}
# `base` is all that a form's own protocol states, `minutes` an estimate on two
# cores, `without` the methods that its model does not suit.
FORMS = {
  'digits': dict(
    base={
      'dataset': 'digits',
      'model': 'convnet3',
      'num_clients': 20,
      'client_fraction': 0.2,
      'rounds': 20,
      'local_epochs': 3,
      'batch_size': 16,
      'finetune': {'epochs': (1, 3), 'batch_size': 16},
      'validation_fraction': 0.2,  # 14 images of a client
    },
    examples=58,
    partitions={
      's=2': {'partition': 'shards', 'shards_per_client': 2},
      **FIVE_SHARDS,
      'Dir(0.1)': {
        'partition': 'dirichlet_capped',
        'dirichlet_beta': 0.1,
        'dirichlet_min_size': 21,  # Per-FedAvg needs two batches
      },
    },
    tuning_seeds=3,  # few validation images a seed: all three choose
    minutes=40,
  ),
  # For two hours of two cores: a quarter of the images, one partition.
  'cifar10': dict(
    base={
      'dataset': 'cifar10',
      'model': 'simple_cnn',
      'max_train_examples': 12_500,
      'num_clients': 50,
      'client_fraction': 0.2,
      'rounds': 30,
      'local_epochs': 3,
      'batch_size': 20,
      'finetune': {'epochs': (1, 5), 'batch_size': 20},
      'validation_fraction': 0.1,  # 25 images of a client
      'checkpoint_every': 10,
    },
    examples=225,
    partitions=FIVE_SHARDS,
    tuning_seeds=1,  # 1,250 validation images a seed
    minutes=115,
    without={'fedbn'},  # no layer normalises
  ),
  # 90 clients of 16 images, of two to five digits: too few to train alone, too
  # unlike for one model. experiments/demo.py trains it with the rates chosen.
  'demo': dict(
    base={
      'dataset': 'digits',
      'model': 'convnet3',
      'num_clients': 90,
      'client_fraction': 0.2,
      'rounds': 25,
      'local_epochs': 5,
      'batch_size': 10,
      'finetune': {'epochs': (5,), 'batch_size': 10},
      'validation_fraction': 0.2,  # 3 images of a client
    },
    examples=13,
    partitions=FIVE_SHARDS,
    tuning_seeds=1,  # 270 validation images a seed
    minutes=40,
  ),
}


def load_form(name, seeds=None):
  """Return the form `name` of the leaderboard, of other seeds if given."""
  known = one_of(FORMS, 'a form of the leaderboard, in configs/leaderboard.py')
  known.check('form', name)
  form = {'without': (), **FORMS[name]}
  base, examples = form['base'], form.pop('examples')
  left_out = {*BASELINES, *form.pop('without')}
  others = [one for one in available() if one not in left_out]
  form |= {'name': name, 'methods': (*BASELINES, *others)}
  form |= {'base': PROTOCOL | base, 'own': second_budgets(base, examples)}
  form |= {'rates': RATES, 'rate_fields': RATE_FIELDS, 'own_views': OWN_VIEWS}
  usual = make_form(**form, seeds=(0, 1, 2))
  made = make_form(**form, seeds=seeds) if seeds else usual
  longer = made.num_trainings / usual.num_trainings
  return made._replace(minutes=usual.minutes * longer)
