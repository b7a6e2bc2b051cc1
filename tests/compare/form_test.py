"""The budget of the leaderboard, and the settings that follow from it."""

import pytest
from helpers import refused
from pages import ROOT

from configs.leaderboard import FORMS, load_form
from fedjax_pfl.algorithms import available
from fedjax_pfl.compare.form import Unit
from fedjax_pfl.compare.protocol import about
from fedjax_pfl.core.user_code import load_code
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.entry import METHOD, REFERENCE
from fedjax_pfl.results.runs.run import INITIAL

DEMO = ROOT / 'results' / 'leaderboard' / 'demo_counts.csv'
BATCHES = {'digits': 4, 'cifar10': 12, 'demo': 2}  # of a pass of a client


def stages_of(form, method):
  unit = Unit(form, next(iter(form.partitions)), method)
  return unit.settings(unit.candidates[0], 0), unit.outline.stages


def is_reference(form, settings):
  return settings.data.num_clients != form.base['num_clients']


@pytest.mark.parametrize('name', BATCHES)
def test_every_method_has_the_same_passes_over_the_data(name):
  """Rounds, epochs of a round and cohort; who differs has as many in all."""
  form = load_form(name)
  base, longest = form.base, max(form.base['finetune']['epochs'])
  share = base['rounds'] * base['client_fraction']  # rounds of a client
  assert {*form.methods} | {*FORMS[name].get('without', ())} == {*available()}
  for method in form.methods:
    settings, stages = stages_of(form, method)
    training, train = settings.training, settings.train
    rounds = sum(stage.rounds for stage in stages)
    epochs = share * base['local_epochs']
    if method == 'local_only':
      assert training.client_fraction == 1
      assert rounds * train.epochs == epochs + longest
    elif is_reference(form, settings):
      assert rounds * train.epochs == epochs
    elif method == 'fedconcat':
      clusters, classifier = stages
      steps = classifier.rounds * 3 / train.epochs
      assert abs(clusters.rounds + steps / BATCHES[name] - base['rounds']) < 0.5
    else:
      assert rounds == base['rounds'], method
    if method != 'local_only' and not is_reference(form, settings):
      assert training.client_fraction == base['client_fraction']
      assert train.epochs == base['local_epochs']


def test_the_grid_replaces_every_rate_that_sees_the_data():
  form = load_form('digits')

  def settings(method):
    unit = Unit(form, 's=5', method)
    return unit.settings({'learning_rate': 0.07}, 1, unit.views)

  fedavg, pfedme, lg_fedavg = map(settings, ('fedavg', 'pfedme', 'lg_fedavg'))
  assert fedavg.training.learning_rate == fedavg.finetune.learning_rate == 0.07
  assert pfedme.hp['inner_lr'] == 0.07
  assert lg_fedavg.hp['learning_rate'] == 0.07
  assert fedavg.data.shards_per_client == 5 and fedavg.seed == 1
  assert fedavg.evaluation.select == 'last'
  assert fedavg.data.validation_fraction > 0
  # The reference has no clients to divide: one run for all partitions.
  one, other = (
    Unit(form, name, 'centralized').settings({'learning_rate': 0.07}, 1)
    for name in ('s=2', 's=5')
  )
  assert one == other


def test_lite_draws_as_many_settings_for_each_method_apart_from_the_tests():
  form = load_form('lite')
  assert len(form.methods) == 10 and {*form.tuning_seeds}.isdisjoint(form.seeds)
  assert {len({*map(repr, own)}) for own in form.candidates.values()} == {6}
  rates, *others = (
    [one['learning_rate'] for one in own] for own in form.candidates.values()
  )
  assert all(own == rates for own in others)
  assert 0.001 <= min(rates) < max(rates) <= 0.3
  assert all('hp.lam' in one for one in form.candidates['ditto'])
  for partition in form.partitions:
    fedavg, local = (
      Unit(form, partition, name) for name in ('fedavg', 'local_only')
    )
    assert fedavg.views[0] == INITIAL
    settings = fedavg.settings({}, 0, fedavg.views)
    assert settings.candidate_views[0] == INITIAL  # no fine-tuning
    settings = local.settings({}, 0, local.views)
    assert settings.finetune.epochs == (1, 5)


def test_one_partition_is_a_form_of_its_own():
  form = load_form('lite').only('digits s=4')
  assert {unit.partition for unit in form.units()} == {'digits s=4'}
  assert form.only('digits s=4') == form
  message = refused(form.only, 'CIFAR-10 Dir(0.1)')
  assert 'a partition of the form lite' in message


def test_methods_of_the_user_stand_beside_the_baselines(tmp_path):
  (tmp_path / 'mine.py').write_text(
    'from fedjax_pfl.algorithms.fedavg import *'
  )
  mine = load_code({'algorithm': f'{tmp_path}/mine.py:Mine'})['algorithm']
  form = load_form('demo', methods=[mine, 'fedavg'])
  assert form.methods[:2] == form.baselines == ('fedavg', 'local_only')
  assert ':Mine#' in form.methods[2]
  message = refused(load_form, 'demo', range(1))
  assert message.startswith('--seeds: got ')


def test_a_method_with_the_clients_of_a_folder_is_no_reference():
  form = load_form('digits')
  assert Unit(form, 's=2', 'centralized').kind == REFERENCE
  form = form._replace(base=form.base | {'num_clients': 0})
  assert Unit(form, 's=2', 'fedavg').kind == METHOD


def test_equal_gradients_are_those_of_fedavg():
  """By the steps that trainings of the demo made, of as many local epochs."""
  _, found = stored_counts.read([DEMO])
  steps = {one.method: one.costs[0].gradients for one in found['s=5']}
  form, shared = load_form('full'), 'digits s=4'
  for method in form.methods:
    times = steps[method] / steps['fedavg']
    before, after = (
      Unit(form, name, method).settings({}, 0)
      for name in (shared, f'{shared}, equal gradients')
    )
    if times < 1.2 or method == 'local_only':  # it has FedAvg's fine-tuning
      assert before == after, method
    else:
      assert abs(after.num_rounds * times - before.num_rounds) <= times / 2


def test_a_training_of_two_partitions_is_counted_once():
  facts = dict(about(load_form('lite')).facts)
  assert facts['trainings'] == 2 * 110 + 2 * 22  # with equal gradients few
  form = load_form('digits')
  assert dict(about(form).facts)['trainings'] == 9 * (3 * 44 + 1)  # Centralized


def test_natural_clients_are_compared_by_sets():
  """Nothing is read: a form is known before its sets are prepared."""
  form = load_form('natural')
  assert len(form.partitions) >= 6 and len(form.methods) >= 20
  assert (form.seeds, form.tuning_seeds) == ((0, 1, 2, 3, 4), (0, 1))
  for name in form.partitions:
    settings = Unit(form, name, 'ditto').settings({'learning_rate': 0.1}, 3)
    data = settings.data
    assert data.partition == 'natural' and data.loss == 'cross_entropy'
    assert settings.training.client_fraction == 1
    assert name == 'heart' or data.data_dir.endswith(f'{name}.csv')


@pytest.mark.parametrize(
  'name, main', [('natural_numbers', 'rmse'), ('natural_survival', 'c_index')]
)
def test_labels_that_are_no_classes_have_a_form_of_their_own(name, main):
  form = load_form(name)
  assert form.measures[0].name == main and len(form.methods) >= 20
  for unit in form.units():
    unit.settings({'learning_rate': 0.1}, 3)  # each method takes such labels
  assert form.seeds == load_form('natural').seeds
