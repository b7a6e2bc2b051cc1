"""Clients who came after training, in the page and in the table of a run."""

from page_runs import make_run
from page_test import rows, sections

from fedjax_pfl.report import page
from fedjax_pfl.report.text_table import table


def of_unseen(*means):
  views = ('initial', 'finetuned')[: len(means)]
  return {
    'unseen': {
      view: {'mean': mean, 'std': 2.0, 'worst_decile': 30.0, 'num_clients': 3}
      for view, mean in zip(views, means, strict=True)
    }
  }


def test_the_page_has_them_beside_those_who_took_part(tmp_path):
  runs = [
    make_run(tmp_path / '0', more=of_unseen(20.0, 55.0)),
    make_run(tmp_path / '1', more=of_unseen(22.0, 65.0), seed=1),
    make_run(tmp_path / '2', 'fedrep'),  # without such clients
  ]
  *_, text = sections(page.render(runs))['Summary'].split('<table')
  assert 'Clients who came after training' in text
  assert rows(text)[1:] == [
    [
      *('FedAvg', '25.00', '67.50', '21.00', '60.00', '-7.50'),
      *('30.00', '30.00', '3'),
    ]
  ]
  assert 'came after training' not in page.render(runs[2:])


def test_a_run_ends_with_a_table_of_them():
  view = {'mean': 62.14, 'std': 11.36}
  views = {'initial': view, 'finetuned_1': view, 'finetuned': view}
  result = {'algorithm': 'fedavg', 'views': views, 'seconds': 41.23}
  unseen = of_unseen(20.0, None)
  unseen['unseen']['finetuned']['worst_decile'] = None
  lines = table([{**result, **unseen}, result]).splitlines()
  assert lines[-3:] == [
    'unseen clients      initial  finetuned  worst tenth  clients',
    '--------------  -----------  ---------  -----------  -------',
    'FedAvg          20.0 ±  2.0          -            -        3',
  ]
  assert not any('unseen' in line for line in table([result]).splitlines())
