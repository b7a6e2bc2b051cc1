"""CSV summaries: what was run, and the command that runs it again."""

import csv
import shlex

import pytest
from finished_runs import DEFAULTS, make_run, make_settings

from configs import common
from experiments.commandline import read_settings
from fedjax_pfl.reproduction import keys
from fedjax_pfl.reproduction.results import Results
from fedjax_pfl.reproduction.summaries import (
  COLUMNS,
  command,
  summary_rows,
  write_csv,
)

CONFIGS = {
  name: common.load(name).to_dict()
  for name in ('fedavg_cifar10', 'digits:fedbabu', 'fedconcat:fedconcat')
}


@pytest.mark.parametrize(
  'changes',
  [
    {},
    {
      'shards_per_client': 3,
      'views': ('initial',),
      'eval_views': (),
      'rounds': 7,
    },
    {'algorithm': 'fedprox', 'hp': {'mu': 0.01, 'trainable': 'body'}},
    {'dataset': 'cifar10', 'preprocessing': 'fedconcat', 'learning_rate': 1.0},
    {
      **CONFIGS['fedconcat:fedconcat'],
      'hp': {},
    },  # no way to take hp.clusters away
    {**CONFIGS['fedconcat:fedconcat'], 'rounds': None, 'lr_milestones': (0.5,)},
  ],
)
def test_a_command_gives_back_its_settings(changes):
  settings = make_settings(**changes)
  words = shlex.split(command(settings, CONFIGS, 'runs/a b'))
  assert words[:2] == ['python', 'experiments/main.py']
  assert words[-1] == '--workdir=runs/a b'
  config = words[2].removeprefix('--config=')
  fields = [word.removeprefix('--config.') for word in words[3:-1]]
  read = read_settings(config, dict(field.split('=', 1) for field in fields))
  assert keys.flat(read) == keys.flat(settings)


def test_rows_and_their_file(tmp_path):
  views = ('initial', 'finetuned')
  result = {'global': {'accuracy': 41.5}}
  place = {'data_dir': '/secret', 'clients_per_chunk': 2}
  first = make_run(
    tmp_path / 'runs' / 'a', views=views, shards_per_client=5, **place
  )
  make_run(tmp_path / 'runs' / 'b', result=result, seed=1)
  with Results.open(tmp_path, DEFAULTS) as results:
    results.scan(tmp_path / 'runs')
  rows = summary_rows(tmp_path, CONFIGS)
  assert [(row['setting'], row['seed'], row['view']) for row in rows] == [
    ('digits:fedbabu', '1', 'global'),
    ('digits:fedbabu', '1', 'initial'),
    ('digits:fedbabu shards_per_client=5', '0', 'finetuned'),
    ('digits:fedbabu shards_per_client=5', '0', 'initial'),
  ]
  assert (rows[0]['mean'], rows[0]['std']) == ('41.5000', '')
  assert rows[1]['clients'] == '4'  # one has no images to train on
  key = keys.run_key(first, defaults=DEFAULTS)
  assert rows[3]['command'] == (
    'python experiments/main.py --config=configs/digits.py:fedbabu '
    f'--config.shards_per_client=5 --workdir=runs/{key}'
  )
  assert rows[3]['machine'].endswith('cores')
  write_csv(tmp_path / 'out' / 'a.csv', rows)
  text = (tmp_path / 'out' / 'a.csv').read_text()
  assert '/secret' not in text and str(tmp_path) not in text
  read = list(csv.DictReader(text.splitlines()))
  assert read == rows and tuple(read[0]) == COLUMNS
  assert summary_rows(tmp_path, CONFIGS, trainings=[key]) == rows[2:]
