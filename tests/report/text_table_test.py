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


def with_choice(select, **test_best):
  """Return the result of a run whose validation chose an earlier round."""
  initial, early, late = (
    {'mean': mean, 'std': 2.0} for mean in (10.0, 61.25, 60.0)
  )
  views = {'initial': initial, 'finetuned_1': early, 'finetuned': late}
  worse = {name: {'mean': 50.0, 'std': 1.0} for name in views}
  chosen = {
    'round': 5,
    'view': 'finetuned_1',
    'validation_accuracy': 64.04,
    'views': views,
  }
  last = {'round': 8, 'view': 'finetuned', 'views': worse}
  return {
    'algorithm': 'fedbabu',
    'seconds': 1,
    'select': select,
    'views': {'validation': views, 'last': worse}[select],
    'validation': chosen,
    'last': last,
    'test_best': test_best,
  }


def test_the_rounds_that_may_be_chosen_stand_side_by_side():
  best = {'together': {'mean': 70.0, 'std': 3.0}}
  without = {'algorithm': 'fedavg', 'views': {}, 'seconds': 1}
  results = [
    with_choice('validation', finetuned=best),
    without,
    {**with_choice('last', initial=best), 'algorithm': 'fedrep'},
  ]
  assert table(results).splitlines()[5:] == [
    '',
    'round chosen by         last   validation    test_best      result',
    '---------------  -----------  -----------  -----------  ----------',
    'FedBABU          50.0 ±  1.0  61.2 ±  2.0  70.0 ±  3.0  validation',
    'FedRep           50.0 ±  1.0  61.2 ±  2.0            -        last',
    'FedBABU: validation chose round 5 of 8, finetuned_1 (64.0 there); last: '
    'finetuned',
    'FedRep: validation chose round 5 of 8, finetuned_1 (64.0 there); last: '
    'finetuned',
    'test_best is chosen by the tests, which is optimistic; - without its view '
    'in eval_views',
  ]
  assert table([without]).count('\n') == 2
