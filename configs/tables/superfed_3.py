"""SuperFed (first version), Table 3: when mixing begins.

  python experiments/reproduce.py --table=superfed/3 \\
      --where phase2_start=0.4

CIFAR-10, as in Table 1. Varied: the share L of all 200 rounds before models are
mixed (0.0 to 0.9), one lambda for all layers (MM) or one each (LM). Printed:
top 1 and top 5 of the server's model. L = 0.4 of MM and 0.8 of LM are the runs
of Table 1.
"""

from configs.tables import common, superfed_1


def get_table():
  return common.table(
    'superfed/3',
    'Global model by the share of rounds before mixing, CIFAR-10',
    rows=('phase2_start',),
    columns=('algorithm', 'metric'),
    cell=cell_of,
  )


def cell_of(published):
  """Return the cell."""
  start = float(published.variant['phase2_start'])
  return superfed_1.cell_of(published, {'hp.phase_start': start})
