"""SuperFed (first version), Table 1: the global model on CIFAR-10 and 100.

  python experiments/reproduce.py --table=superfed/1 \\
      --where dataset=cifar10

5-layer CNN, 100 clients of two classes, 10 of them in a round, 200 rounds
(CIFAR-100: 300). Varied: the method. Printed, of what is left of the table: top
1 and top 5 of the server's model on the whole test set after the last round,
without a deviation.

SuperFed's loss is that of the first public code, as FedProx's is, with one
private model to begin with for all clients. Its share of rounds before mixing
is 0.4 (MM) and 0.8 (LM) on CIFAR-10, found in Table 3; 0.5 on CIFAR-100, where
only MM's is known. Not stated: how APFL was tuned; its defaults are ours.
Differs from the code: partial batches are trained on, and counted in tests.
"""

from configs.tables import common
from fedjax_pfl.reproduction.cells import Cell

# Read off the baselines' configs; the data set's come from superfed_DATASET.
METHODS = {
  'fedavg': 'fedavg_superfed',
  'fedprox': 'fedprox_superfed',
  'apfl': 'apfl_cifar10',
}
FIELDS = 'algorithm', 'hp', 'views', 'finetune'
MIXING = {'superfed_mm': 'model', 'superfed_lm': 'layer'}
FIRST_CODE = {'hp.protocol': 'first_code', 'hp.local_init': 'shared'}
LM_START = {'cifar10': 0.8}  # elsewhere that of MM


def get_table():
  return common.table(
    'superfed/1',
    'Global model on CIFAR-10 and CIFAR-100, two classes a client',
    rows=('algorithm',),
    columns=('dataset', 'metric'),
    cell=cell_of,
  )


def cell_of(published, changes=None):
  """Return the cell of any of the paper's tables."""
  settings = common.load_config(f'superfed_{published.dataset}')
  if published.algorithm in MIXING:
    own = mixing(published)
  else:
    baseline = common.load_config(METHODS[published.algorithm])
    own = {name: baseline[name] for name in FIELDS}
  settings = common.replaced(settings, {**own, **(changes or {})})
  return Cell(published, settings, common.READINGS[published.metric])


def mixing(published):
  """Return the hyperparameters of SuperFed-MM, or of -LM."""
  fields = {**FIRST_CODE, 'hp.mixing': MIXING[published.algorithm]}
  if published.algorithm == 'superfed_lm' and published.dataset in LM_START:
    fields['hp.phase_start'] = LM_START[published.dataset]
  return fields
