"""What a plan takes: counted in the methods, timed once for a model."""

import numpy as np
import pytest
import small_runs

from fedjax_pfl.compare import forecast as module
from fedjax_pfl.compare.forecast import Speed, forecast, total
from fedjax_pfl.compare.plan import Planned
from fedjax_pfl.settings import parse_config

# 4 of 5 clients, each with 16 images in two batches of 8.
FIELDS = {
  **{'num_clients': 5, 'client_fraction': 0.8, 'max_train_examples': 80},
  **{'partition': 'iid', 'test_partition': 'iid', 'batch_size': 8},
  **{'rounds': 3, 'local_epochs': 2, 'views': ('initial',), 'eval_views': ()},
}


def make(**changes):
  return parse_config(small_runs.make_settings(**{**FIELDS, **changes}))


@pytest.fixture
def of(monkeypatch):
  """Return settings -> their costs, of a machine of one device."""
  monkeypatch.setattr(module, 'speed_of', lambda *_: Speed(100.0, 10.0, 1.0))
  monkeypatch.setattr(module, 'choose_devices', lambda size: 1)
  return lambda *plan: forecast(
    [Planned(settings, {}) for settings in plan], lambda text: None
  )


def test_a_training_by_hand(of):
  (cost,) = of(make())
  assert (cost.trainings, cost.rounds) == (1, 3)
  assert cost.images == 3 * 4 * 2 * 16
  # 18 tests of 5 clients: 3 or 4 each, one batch, a third of a step.
  seconds = 1.5 + 3 * 4 * (10 + 4) + 5 / 3 + 2 * 250
  assert cost.seconds == pytest.approx(seconds)


def test_steps_are_those_of_the_method(of):
  fedavg, ditto, fedrep = of(
    make(), make(algorithm='ditto'), make(algorithm='fedrep')
  )
  assert ditto.images == 2 * fedavg.images
  assert fedrep.images > fedavg.images  # the epochs of the head
  (both,) = of(make(algorithm='lg_fedavg', rounds=4))
  assert both.rounds == 5 and both.seconds > 3 * 250  # a program a stage


def test_evaluations_and_fine_tuning_come_on_top(of):
  cost, tuned, often = of(
    make(),
    make(views=('initial', 'finetuned'), finetune={'epochs': (1, 5)}),
    make(eval_views=('initial',), eval_every=1),
  )
  # Five epochs of two batches, and a view more, of 5 clients.
  assert tuned.seconds - cost.seconds == pytest.approx(5 * 10 + 5 / 3)
  assert often.seconds - cost.seconds == pytest.approx(4 * 5 / 3)


def test_what_is_shared_is_paid_once(of):
  first, seed, rate, again = of(
    make(), make(seed=1), make(learning_rate=0.5), make()
  )
  assert first.seconds - seed.seconds == pytest.approx(2 * 250)
  assert rate == seed and not any(again)
  assert total([first, again, seed]).trainings == 2


def test_a_model_is_timed_once_on_this_machine(monkeypatch, tmp_path):
  monkeypatch.setenv('FEDJAX_PFL_CACHE', str(tmp_path))
  logged = []
  known = module.speed_of(make(), 1, logged.append)
  assert known.compilation > 0 and known.client > 0 and known.step >= 0
  assert np.isfinite(known).all() and len(logged) == 1
  monkeypatch.setattr(module, 'measure', None)
  peek = module.build_method.peek_shape
  of_others = lambda data: peek(data)._replace(num_clients=3, has_tests=False)
  monkeypatch.setattr(module.build_method, 'peek_shape', of_others)
  assert module.speed_of(make(rounds=9), 1, logged.append) == known
  (path,) = tmp_path.glob('speeds/*')
  path.write_text('{')  # damaged: it is timed again
  monkeypatch.setattr(module, 'measure', lambda *_: Speed(1.0, 2.0, 3.0))
  assert module.speed_of(make(), 1, logged.append) == (1, 2, 3)
  monkeypatch.setenv('FEDJAX_PFL_CACHE', str(path))  # a file: nothing is stored
  assert module.speed_of(make(), 1, logged.append) == (1, 2, 3)
