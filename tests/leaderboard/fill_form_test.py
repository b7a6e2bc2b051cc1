"""A whole leaderboard on a small model, stopped and repeated."""

import pytest
import small_cells
import small_runs

from configs.leaderboard import load_form
from fedjax_pfl.leaderboard import board, fill_form
from fedjax_pfl.runs import run_dir
from fedjax_pfl.training import loop
from fedjax_pfl.tuning import train_all as module

pytestmark = pytest.mark.usefixtures('quick_compiler')


@pytest.fixture
def form(monkeypatch):
  monkeypatch.setattr(module, 'build_experiment', small_cells.build)
  small = {
    **{'num_clients': 5, 'client_fraction': 0.4, 'max_train_examples': 100},
    **{'rounds': 1, 'local_epochs': 1, 'batch_size': 8},
    'finetune': {'epochs': (1, 2), 'batch_size': 8},
  }
  form = load_form('digits', (0, 1))
  return form._replace(
    base={**form.base, **small},
    partitions={'s=2': form.partitions['s=2']},
    methods=('fedavg', 'local_only'),
    own={'local_only': {'client_fraction': 1.0}},
    rates=(0.01, 0.1),
    tuning_seeds=1,
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
  with pytest.raises(KeyboardInterrupt):
    fill_form.run(form, tmp_path)
  assert 'no partition has both baselines' in capsys.readouterr().out
  assert not [*tmp_path.glob('*.html')]
  page = fill_form.run(form, tmp_path)
  # Two rates with seed 0, then the better one with seed 1, of two methods.
  assert len(trained) == len({*trained}) == 6 == form.num_trainings
  assert len([*(tmp_path / fill_form.RUNS).iterdir()]) == 6
  assert page.name == 'digits_seeds_0_1.html' and page.is_file()
  fedavg, local = written = board.read(page.with_suffix('.csv'), 'digits')
  assert (fedavg['method'], local['method']) == ('fedavg', 'local_only')
  assert local['before'] == '' and local['vs_fedavg_verdict']
  assert fedavg['view'] in ('finetuned_1', 'finetuned')
  before = small_runs.snapshot(tmp_path / fill_form.RUNS)
  fill_form.run(form, tmp_path, others=written)
  assert small_runs.snapshot(tmp_path / fill_form.RUNS) == before
  assert 'verdicts are those of seeds 0 1' in capsys.readouterr().out
