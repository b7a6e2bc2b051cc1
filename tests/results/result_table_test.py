"""Tables of plain text, letter by letter."""

from fedjax_pfl.results.tables.result_table import table

VIEW = {'mean': 62.14, 'std': 11.36}
NONE = {'mean': None, 'std': None}
LATE = {'mean': 60.0, 'std': 2.0}


def result(algorithm='fedavg', seconds=1, **more):
  return {'algorithm': algorithm, 'seconds': seconds, **more}


def lines(*results):
  return table(results).splitlines()


def test_a_row_for_each_result():
  # Stops on the way of fine-tuning would make the table too wide.
  views = {'initial': {'mean': 100.0, 'std': 0.0}, 'finetuned_1': VIEW}
  assert lines(
    result(views={'initial': VIEW}, seconds=41.23),
    result('fedbabu', 1234.5, views={**views, 'finetuned': VIEW}),
    result('mine', 0, views={'initial': NONE}),
  ) == [
    'algorithm       initial    finetuned  seconds',
    '---------  ------------  -----------  -------',
    'FedAvg      62.1 ± 11.4            -     41.2',
    'FedBABU    100.0 ±  0.0  62.1 ± 11.4   1234.5',
    'mine                  -            -      0.0',
  ]


def test_the_global_model_and_who_is_left_out_where_there_is_one():
  own, out = {'own': VIEW}, {'own': {**VIEW, 'num_left_out': 3}}
  by_batch = lines(result(views=own, batch_statistics=True))
  assert by_batch[-1].endswith('not with norm_statistics=running: FedAvg.')
  heads, _, *rows = lines(
    result('fedper', views=own),
    result(views=out, **{'global': {'accuracy': 47.09}}),
  )
  assert heads.split() == ['algorithm', 'own', 'global', 'seconds']
  assert [row.split()[-2] for row in rows[:2]] == ['-', '47.1']
  assert rows[2:] == [
    'FedAvg: clients left out of the means: attackers, not evaluated, or '
    'without training or test examples: 3'
  ]
  assert 'global' not in lines(result(views=own))[0]


def with_choice(algorithm, select, **test_best):
  """Return the result of a run whose validation chose an earlier round."""
  views = {'finetuned_1': {'mean': 61.25, 'std': 2.0}, 'finetuned': LATE}
  worse = {name: {'mean': 50.0, 'std': 1.0} for name in views}
  chosen = {'round': 5, 'view': 'finetuned_1', 'validation_accuracy': 64.04}
  return result(
    algorithm,
    select=select,
    views={'validation': views, 'last': worse}[select],
    validation={**chosen, 'views': views},
    last={'round': 8, 'view': 'finetuned', 'views': worse},
    test_best=test_best,
  )


def test_the_rounds_that_may_be_chosen_stand_side_by_side():
  best = {'together': {'mean': 70.0, 'std': 3.0}}
  found = lines(
    with_choice('fedbabu', 'validation', finetuned=best),
    result(views={}),
    with_choice('fedrep', 'last', initial=best),
  )
  rows = [' '.join(line.split()) for line in found[6:-1]]
  assert rows[:1] + rows[2:] == [
    'Method Last Validation Test best Chosen On validation Result',
    'FedBABU 50.00 ± 1.00 61.25 ± 2.00 70.00 ± 3.00 5, finetuned_1 64.04 '
    'validation',
    'FedRep 50.00 ± 1.00 61.25 ± 2.00 – 5, finetuned_1 64.04 last',
  ]
  assert 'which is optimistic' in found[-1]


def test_clients_who_came_after_training_have_a_table():
  views = {'initial': VIEW, 'finetuned': VIEW}
  more = {'worst_decile': None, 'num_clients': 3}
  unseen = {'initial': {'mean': 20.0, 'std': 2.0, **more}}
  unseen['finetuned'] = {**NONE, **more}
  found = lines(result(views=views, unseen=unseen))
  assert found[-3:] == [
    'unseen clients      initial  finetuned  worst tenth  clients',
    '--------------  -----------  ---------  -----------  -------',
    'FedAvg          20.0 ±  2.0          -            -        3',
  ]
  found = lines(result(views=views, unseen=unseen, measure='c_index'))
  assert found[-1].startswith('FedAvg          20.000 ± 2.000  ')
