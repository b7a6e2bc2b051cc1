"""Tables of plain text, letter by letter."""

from fedjax_pfl.report.text_table import table


def test_table():
  view = {'mean': 62.14, 'std': 11.36}
  results = [
    {'algorithm': 'fedavg', 'views': {'initial': view}, 'seconds': 41.23},
    {
      'algorithm': 'fedbabu',
      # Stops on the way of fine-tuning would make the table too wide.
      'views': {
        'initial': {'mean': 100.0, 'std': 0.0},
        'finetuned_1': view,
        'finetuned': view,
      },
      'seconds': 1234.5,
    },
    {
      'algorithm': 'mine',
      'views': {'initial': {'mean': None, 'std': None}},
      'seconds': 0,
    },
  ]
  assert table(results).splitlines() == [
    'algorithm       initial    finetuned  seconds',
    '---------  ------------  -----------  -------',
    'FedAvg      62.1 ± 11.4            -     41.2',
    'FedBABU    100.0 ±  0.0  62.1 ± 11.4   1234.5',
    'mine                  -            -      0.0',
  ]


def test_the_table_has_the_global_model_where_there_is_one():
  view = {'mean': 62.14, 'std': 11.36}
  result = {'algorithm': 'fedper', 'views': {'own': view}, 'seconds': 1}
  evaluated = {**result, 'algorithm': 'fedavg', 'global': {'accuracy': 47.09}}
  unknown = {**evaluated, 'global': {'accuracy': None}}
  heads, _, *rows = table([result, evaluated, unknown]).splitlines()
  assert heads.split() == ['algorithm', 'own', 'global', 'seconds']
  assert [row.split()[-2] for row in rows] == ['-', '47.1', '-']
  assert 'global' not in table([result])


def test_the_table_notes_who_is_left_out():
  def result(name, left_out):
    view = {'mean': 1.0, 'std': 1.0, 'num_left_out': left_out}
    return {'algorithm': name, 'views': {'initial': view}, 'seconds': 1}

  lines = table([result('fedavg', 0), result('fedbabu', 3)])
  assert lines.splitlines()[4:] == [
    'FedBABU: clients left out of the means, for want of training or test '
    'examples: 3'
  ]
