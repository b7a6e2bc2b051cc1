"""The CSV of runs: their numbers, and the command that repeats each."""

import csv
import shlex

import pytest
from finished_runs import make_run, make_settings

from configs import common
from experiments.commandline import read_settings
from fedjax_pfl.reproduction.output.run_summary import (
  COLUMNS,
  command,
  summary_rows,
  write_csv,
)
from fedjax_pfl.reproduction.results.results import Results
from fedjax_pfl.settings import parse_config
from fedjax_pfl.training import keys

CONFIGS = {
  name: parse_config(common.load(name).to_dict())
  for name in (
    'fedbabu_cifar10:fedavg',
    'digits:fedbabu',
    'fedconcat:fedconcat',
  )
}

FEDCONCAT = common.load('fedconcat:fedconcat').to_dict()


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
      **FEDCONCAT,
      'hp': {},
    },  # a command cannot remove hp.clusters
    {**FEDCONCAT, 'rounds': None, 'lr_milestones': (0.5,)},
  ],
)
def test_a_command_gives_back_its_settings(changes):
  settings = parse_config(make_settings(**changes))
  words = shlex.split(command(settings, CONFIGS, 'runs/a b'))
  assert words[:2] == ['python', 'experiments/main.py']
  assert words[-1] == '--workdir=runs/a b'
  config = words[2].removeprefix('--config=')
  fields = [word.removeprefix('--config.') for word in words[3:-1]]
  read = read_settings(config, dict(field.split('=', 1) for field in fields))
  assert keys.flat(parse_config(read)) == keys.flat(settings)


def test_rows_and_their_file(tmp_path):
  views = ('initial', 'finetuned')
  result = {'global': {'accuracy': 41.5}}
  place = {'data_dir': '/secret', 'clients_per_chunk': 2}
  first = make_run(
    tmp_path / 'runs' / 'a', views=views, shards_per_client=5, **place
  )
  make_run(tmp_path / 'runs' / 'b', result=result, seed=1)
  results = Results()
  results.scan(tmp_path / 'runs')
  rows = summary_rows(results, CONFIGS)
  assert [(row['setting'], row['seed'], row['view']) for row in rows] == [
    ('digits:fedbabu', '1', 'global'),
    ('digits:fedbabu', '1', 'initial'),
    ('digits:fedbabu shards_per_client=5', '0', 'finetuned'),
    ('digits:fedbabu shards_per_client=5', '0', 'initial'),
  ]
  assert (rows[0]['mean'], rows[0]['std']) == ('41.5000', '')
  assert rows[1]['num_clients'] == '4'  # one has no images to train on
  key = keys.run_key(first)
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
  assert summary_rows(results, CONFIGS, trainings=[key]) == rows[2:]
