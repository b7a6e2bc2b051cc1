"""The frozen forms of `compare`: what they train, in one place.

  fedjax-pfl compare --form=digits    three partitions of 20 clients
  fedjax-pfl compare --form=cifar10   CIFAR-10
  fedjax-pfl compare --form=demo      the rates of the demo
  fedjax-pfl compare --form=lite      ten methods, random settings
  fedjax-pfl compare --form=full      the same of all methods
  fedjax-pfl compare --form=natural   26 methods, six sets whose clients exist
  fedjax-pfl compare --form=natural_numbers    22 of them: RMSE, of parkinsons
  fedjax-pfl compare --form=natural_survival   22 of them: C-index, of brca

For every partition and method: a training for each candidate and each tuning
seed; the candidate with the best accuracy on validation examples; a training
with it for the other seeds. Candidates are the learning rates of `rates`, or
`random` settings that are drawn. All methods have the same rounds, cohorts and
local epochs; some train more in them, as FedPAC its head: lite and full have
each partition again with `equal_gradients`. `second_budgets` is for methods
that do not count so.
"""

import math

from experiments.natural import sets
from fedjax_pfl.algorithms import available
from fedjax_pfl.compare.combinations import Range, make_candidates
from fedjax_pfl.compare.form import LAST_ROUND, make_form
from fedjax_pfl.core.rules import one_of
from fedjax_pfl.data.stored_arrays import data_root

BASELINES = 'fedavg', 'local_only'

RATES = 0.003, 0.01, 0.03  # with momentum 0.9, of all forms
# What the grid replaces, where that is not the rate of training and fine-tuning
# alone: the rate of the steps that see the data. FedPAC's head and FedAS's
# alignment keep their own rates at every point of the grid.
RATE_FIELDS = {
  'lg_fedavg': ('learning_rate', 'finetune.learning_rate', 'hp.learning_rate'),
  'pfedme': ('hp.inner_lr',),  # learning_rate is that of the server's pull
}

# The rule by which these predict, where it is not the first view that is found.
OWN_VIEWS = dict.fromkeys(('fedproto', 'fedtgp'), 'prototypes')
OWN_VIEWS |= {'knn_per': 'neighbours'}
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
    'fedconcat': {'rounds': clusters, 'hp': {'classifier_rounds': steps // 3}},
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


def equal_gradients(own, base):
  """Return `own`, with rounds in which these methods train as much as FedAvg.

  FedAS keeps its rounds: how much it aligns depends on who takes part.
  """
  rounds, epochs = base['rounds'], base['local_epochs']
  times = {'apfl': 2, 'ditto': 2, 'pfedme': 5}  # two models; five inner steps
  times |= dict.fromkeys(('fedpac', 'partial'), 1 + 1 / epochs)  # of the head
  fewer = {name: {'rounds': round(rounds / x)} for name, x in times.items()}
  return own | fewer


# Of every run of every form.
PROTOCOL = LAST_ROUND | {
  'aggregation': 'examples',
  'lr_milestones': (),  # constant, and fine-tuning has the same
  'momentum': 0.9,
}
# Where random settings are drawn, on a log scale: of all, and of one more.
RANGES = {'learning_rate': Range(1e-3, 0.3, False)}
OWN_RANGES = {
  method: {f'hp.{name}': Range(low, high, isinstance(high, int))}
  for method, name, low, high in (
    ('apfl', 'alpha', 0.1, 0.9),
    ('ditto', 'lam', 0.05, 5.0),
    ('fedala', 'learning_rate', 0.1, 3.0),
    ('fedamp', 'alpha', 1.0, 100.0),
    ('fedas', 'align_learning_rate', 1e-3, 0.1),
    ('fedcp', 'lam', 0.5, 50.0),
    ('feddbe', 'kappa', 1.0, 100.0),
    ('feddyn', 'alpha', 1e-3, 0.3),
    ('fedlc', 'tau', 0.1, 3.0),
    ('fedntd', 'beta', 0.1, 3.0),
    ('fedopt', 'learning_rate', 1e-3, 0.1),
    ('fedpac', 'head_learning_rate', 1e-3, 0.3),
    ('fedprox', 'mu', 1e-3, 1.0),
    ('fedproto', 'lam', 0.1, 10.0),
    ('fedrs', 'alpha', 0.1, 0.9),
    ('gpfl', 'mu', 0.01, 1.0),
    ('ifca', 'clusters', 2, 5),
    ('knn_per', 'lam', 0.1, 0.9),
    ('moon', 'mu', 0.1, 10.0),
    ('per_fedavg', 'beta', 1e-3, 0.1),
    ('pfedme', 'lam', 1.0, 50.0),
  )
}


def natural(name, **changes):
  """Return the fields of a prepared set, whose clients are counted."""
  clients, _ = sets.SETS[name]['counts']
  fields = sets.fields_of(name, data_root())
  fields = {
    name: x for name, x in fields.items() if 'learning_rate' not in name
  }
  return {**fields, 'metrics': (), 'num_clients': clients, **changes}


# `base` is all that a form's own protocol states, `without` the methods that
# its model does not suit; of `tuning_seeds` seeds, the first ones.
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
  ),
  # At least 50 tests a client, and a million images of local training a run;
  # digits: 5 clients of 260 images, CIFAR-10: 20 of 2,250.
  'lite': dict(
    base={
      'num_clients': 20,
      'client_fraction': 0.25,
      'rounds': 30,
      'local_epochs': 3,
      'batch_size': 50,
      'finetune': {'epochs': (0, 1, 5), 'batch_size': 50},
      'validation_fraction': 0.1,
    },
    examples=2250,
    partitions={
      'CIFAR-10 Dir(0.1)': {
        'dataset': 'cifar10',
        'model': 'simple_cnn',
        'partition': 'dirichlet_capped',
        'dirichlet_beta': 0.1,
        'dirichlet_min_size': 400,  # of which tests are a fifth
      },
      'digits s=4': {
        'dataset': 'digits',
        'model': 'convnet3',
        'partition': 'shards',
        'shards_per_client': 4,
        'num_clients': 5,
        'client_fraction': 0.4,
        'rounds': 385,
        'local_epochs': 5,
      },
    },
    random=6,
    methods=(
      *('fedavg', 'local_only', 'fedprox', 'fedper', 'fedrep', 'fedbabu'),
      *('ditto', 'apfl', 'fedrod', 'fedala'),
    ),
  ),
}
# Sets whose clients exist, in the order of their time: a form that was stopped
# is whole for some. `prepare` writes all but heart. Those with classes: a form
# has one number to choose by, and of these all clients have an accuracy.
FORMS['natural'] = dict(
  base={
    'partition': 'natural',
    'client_fraction': 1.0,
    'model': 'mlp',
    'rounds': 20,
    'local_epochs': 2,
    'batch_size': 16,
    'finetune': {'epochs': (1, 5), 'batch_size': 16},
    'validation_fraction': 0.2,
  },
  examples=100,
  partitions={
    'heart': {'dataset': 'heart', 'num_clients': 4, 'standardise': 'client'},
    'office_caltech': natural('office_caltech', model='mlp'),
    'wisdm': natural('wisdm'),
    'amazon_reviews': natural(
      'amazon_reviews', model='mlp', loss='cross_entropy'
    ),
    'spoken_digits': natural('spoken_digits', model='mlp', image_size=16),
    'landmine': natural('landmine', loss='cross_entropy'),  # 94 % have none
  },
  rates=(0.01, 0.03, 0.1),
  tuning_seeds=2,
  methods=(
    *('fedavg', 'local_only', 'fedprox', 'scaffold', 'fedopt', 'feddyn'),
    *('fednova', 'moon', 'fedper', 'fedrep', 'fedbabu', 'lg_fedavg'),
    *('ditto', 'apfl', 'pfedme', 'per_fedavg', 'fedrod', 'fedala'),
    *('fedamp', 'ifca', 'cfl', 'fedas', 'fedproto', 'knn_per', 'partial'),
    'superfed',
  ),
)
# Labels that are no classes have another number to choose by, so other forms.
for name, loss, of_set, rates in (
  ('natural_numbers', 'squared', 'parkinsons', (3e-5, 1e-4, 3e-4)),
  ('natural_survival', 'cox', 'brca', (0.003, 0.01, 0.03)),
):
  FORMS[name] = FORMS['natural'] | {
    'base': FORMS['natural']['base'] | {'loss': loss},
    'partitions': {of_set: natural(of_set, model='mlp')},
    'rates': rates,
    'without': {'fedas', 'fedproto', 'fedrod', 'knn_per'},  # ask for classes
  }
# All methods, 12 settings, ten seeds: two more sets.
FORMS['full'] = FORMS['lite'] | {
  'random': 12,
  'methods': (),
  'partitions': FORMS['lite']['partitions']
  | {
    'CIFAR-100 Dir(0.1)': FORMS['lite']['partitions']['CIFAR-10 Dir(0.1)']
    | {'dataset': 'cifar100'},
    'Fashion-MNIST Dir(0.1)': FORMS['lite']['partitions']['CIFAR-10 Dir(0.1)']
    | {'dataset': 'fashion_mnist'},
  },
  'without': {'fedbn'},
}
SEEDS = {'lite': range(1, 6), 'full': range(1, 11)}
SEEDS |= {name: range(5) for name in FORMS if name.startswith('natural')}
TUNING_SEED = 0  # of random settings: in no number


def load_form(name, seeds=(), methods=()):
  """Return the form `name`, of other seeds or methods if given.

  A method may be the user's own, loaded; baselines come first.
  """
  known = one_of(FORMS, 'a frozen form of `compare`, in configs/leaderboard.py')
  known.check('form', name)
  form = {'without': (), 'methods': (), **FORMS[name]}
  left_out = {*BASELINES, *form['without']}
  chosen = methods or form['methods'] or available()
  others = [one for one in chosen if one not in left_out]
  methods = (*BASELINES, *others)
  base = PROTOCOL | form['base']
  partitions, own = {**form['partitions']}, {}
  for partition, fields in form['partitions'].items():
    whole = base | fields
    own[partition] = second_budgets(whole, form['examples'])
    if 'random' in form:
      again = f'{partition}, equal gradients'
      partitions[again] = fields
      own[again] = equal_gradients(own[partition], whole)
  seeds = tuple(seeds or SEEDS.get(name, range(3)))
  if number := form.get('random'):
    tuning = (TUNING_SEED,)
    varied = {'': RANGES, **OWN_RANGES}
    candidates = make_candidates(methods, varied, number)
  else:
    tuning = seeds[: form['tuning_seeds']]
    rates = tuple({'learning_rate': rate} for rate in form.get('rates', RATES))
    candidates = dict.fromkeys(methods, rates)
  return make_form(
    name=name,
    base=base,
    partitions=partitions,
    methods=methods,
    baselines=BASELINES,
    own=own,
    candidates=candidates,
    rate_fields=RATE_FIELDS,
    own_views=OWN_VIEWS,
    seeds=seeds,
    tuning_seeds=tuning,
  )
