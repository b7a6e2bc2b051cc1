"""A whole leaderboard on a small model, stopped and repeated."""

import pytest
import small_cells
import small_runs
from helpers import read_rows
from user_commands import load_command

from configs.leaderboard import load_form
from fedjax_pfl.compare import train as module
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import loop

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture
def form(monkeypatch):
  monkeypatch.setattr(module.build, 'build_experiment', small_cells.build)
  small = {
    **{'num_clients': 5, 'client_fraction': 0.4, 'max_train_examples': 100},
    **{'rounds': 1, 'local_epochs': 1, 'batch_size': 8},
    'finetune': {'epochs': (0, 1, 2), 'batch_size': 8},
  }
  form = load_form('digits', (0, 1))
  rates = ({'learning_rate': 0.01}, {'learning_rate': 0.1})
  return form._replace(
    base={**form.base, **small},
    partitions={'s=2': form.partitions['s=2']},
    methods=('fedavg', 'local_only'),
    own={'s=2': {'local_only': {'client_fraction': 1.0}}},
    candidates=dict.fromkeys(form.methods, rates),
    tuning_seeds=(0,),
  )


@pytest.mark.long
def test_a_stopped_leaderboard_goes_on_and_trains_nothing_twice(
  form, tmp_path, monkeypatch, capsys
):
  trained, calls, train = [], [], loop.train

  def counted(experiment, workdir, program):
    if run_dir.is_finished(workdir):  # it is there for the shapes alone
      return train(experiment, workdir, program)
    calls.append(workdir)
    if len(calls) == 4:  # after FedAvg was tuned, and trained with seed 1
      raise KeyboardInterrupt
    trained.append(workdir)
    return train(experiment, workdir, program)

  monkeypatch.setattr(loop, 'train', counted)
  main, _ = load_command(monkeypatch, 'compare.py')
  run, runs = (main.__globals__[name] for name in ('run', 'RUNS'))
  with pytest.raises(KeyboardInterrupt):
    run(form, tmp_path)
  assert 'no partition has all baselines' in capsys.readouterr().out
  assert not [*tmp_path.glob('*.html')]
  page = run(form, tmp_path)
  # Two rates with seed 0, then the better one with seed 1, of two methods.
  assert len(trained) == len({*trained}) == 6 == 2 * form.trainings
  assert len([*(tmp_path / runs).iterdir()]) == 6
  assert page.name == 'digits_seeds_0_1.html' and page.is_file()
  rows = read_rows(page.with_suffix('.csv'))
  fedavg, local = sorted(rows, key=lambda row: row['method'])
  assert local['before'] == '' and local['vs_fedavg_verdict']
  assert fedavg['view'] in ('initial', 'finetuned_1', 'finetuned')
  before = small_runs.snapshot(tmp_path / runs)
  shard = run(form, tmp_path, 2, 2)
  assert 'local_only' in (text := shard.read_text()) and 'fedavg' not in text
  assert small_runs.snapshot(tmp_path / runs) == before
