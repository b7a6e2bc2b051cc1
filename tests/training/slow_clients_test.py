"""Runs in simulated time: a deadline, buffers; stopped, and continued."""

import numpy as np
import pytest
from small_runs import assert_same_run, make_experiment, record

from fedjax_pfl.runs import run_dir
from fedjax_pfl.training.loop import train

pytestmark = pytest.mark.usefixtures('quick_compiler')
SMALL = {
  'algorithm': 'fedper',
  'num_clients': 6,
  'shards_per_client': 5,
  'client_fraction': 0.5,
  'rounds': 4,
  'log_every': 1,
  'eval_every': 4,
  'checkpoint_every': 2,
  'views': ('initial',),
  'eval_views': (),
  'client_speeds': 'lognormal',
}
RUNS = {
  # Clients remember what they have not sent.
  'partial': {'deadline': 4.0, 'late_clients': 'partial', 'dropout_rate': 0.3}
  | {'compression': 'topk', 'server_optimizer': 'yogi'},
  'buffers': {'buffer_size': 2, 'dropout_rate': 0.3},
}


@pytest.mark.parametrize('kind', RUNS)
def test_a_run_has_a_clock_and_continues_it(kind, tmp_path):
  experiment = make_experiment(**SMALL, **RUNS[kind])
  run = record(experiment, tmp_path, [2])
  train(experiment, tmp_path / 'killed2', run.program)
  assert_same_run(tmp_path / 'killed2', run.path)
  seconds = [one['sim_seconds'] for one in run_dir.load_metrics(run.path)]
  lasts = np.diff([0, *seconds])
  assert (lasts >= 0).all() and seconds[-1] > 0
  assert run.result['sim_seconds'] == seconds[-1]
  if 'deadline' in RUNS[kind]:
    assert lasts.max() <= RUNS[kind]['deadline']
    assert sum(one['dropped'] for one in run_dir.load_metrics(run.path))
