"""The flags of `compare`, up to the form of what is trained."""

import hospitals
import pytest
import user_commands
from helpers import refused

from experiments import commandline
from fedjax_pfl.compare import forecast, protocol
from fedjax_pfl.compare.forecast import Speed
from fedjax_pfl.compare.form import plans_of
from fedjax_pfl.compare.plan import check
from fedjax_pfl.results.tables.board_tables import title_of

WORDS = (
  '--config=configs/digits.py:ditto,quick',
  '--config.hp.lam=0.5',
  '--config.validation_fraction=0.2',
)


@pytest.fixture
def form(monkeypatch):
  """Return flags -> the form."""

  def make(*words):
    given = () if words[0].startswith(('--form', '--config=')) else WORDS
    main, file = user_commands.load_command(monkeypatch, 'compare.py')
    overrides, _ = commandline.parse_words([file, *given, *words])
    return main.__globals__['read_form'](overrides)

  return make


def test_a_rate_of_fine_tuning_that_is_given_is_kept(form):
  words = '--methods=fedavg,fedbabu', '--grid=learning_rate=0.05'
  said = {
    0.05: 'has that rate, or 0.3, 0.1, 0.03 times it',
    0.002: 'fine-tuning has the rate 0.002.',
  }
  for given, rate in ((), 0.05), (('0.002',), 0.002):
    more = [f'--config.finetune.learning_rate={value}' for value in given]
    made = form(*words, *more)
    assert said[rate] in ' '.join(protocol.about(made).protocol)
    for unit in made.units():
      settings = unit.settings(unit.candidates[0], 0, unit.views)
      assert settings.finetune.learning_rate == rate
      assert settings.training.learning_rate == 0.05
      others = [f'finetuned_x{x}' for x in (0.3, 0.1, 0.03) if not given]
      assert settings.candidate_views == ('finetuned', *others)


def test_one_trained_model_is_fine_tuned_by_several_rates(form):
  """Where a method fine-tunes by `finetune`: FedRep has a head of its own."""
  words = '--methods=fedrep,local_only', '--grid=learning_rate=0.05,0.1'
  fedrep, alone = form(*words).units()
  assert fedrep.views == ('initial', 'finetuned') and alone.views == (
    'personal',
  )
  assert form(*words).trainings == 2 + 2  # of two settings and two more seeds
  for frozen in 'digits', 'demo', 'lite':
    assert 'factors' not in form(f'--form={frozen}').base['finetune']


def test_each_method_has_the_config_and_as_many_settings(form, tmp_path):
  text = 'from fedjax_pfl.algorithms.fedavg import *'
  (tmp_path / 'mine.py').write_text(text)
  names = f'fedavg,{tmp_path}/mine.py:Mine,ditto'
  made = form(
    f'--methods={names}',
    '--random=4',
    '--range=learning_rate=0.001..0.3',
    '--range=ditto:hp.lam=0.1..5.0',
    '--seeds=3:6',
  )
  _, mine, ditto = made.methods
  assert made.baselines == ('fedavg',) and mine.value.build
  (own,) = made.own.values()
  assert own == {'ditto': {'hp': {'lam': 0.5}}}
  assert (made.seeds, made.tuning_seeds) == ((3, 4, 5), (3,))
  assert [len(made.candidates[name]) for name in made.methods] == [4] * 3
  assert {*made.candidates[ditto][0]} == {'learning_rate', 'hp.lam'}
  assert made.base['num_clients'] == 10 and 'views' not in made.base


def test_a_method_that_a_clip_breaks_is_refused_beforehand(form):
  private = 'clip=1.0', 'noise_multiplier=1', 'delta=1e-3'
  words = [f'--config.dp.{word}' for word in private]
  plans = plans_of(form('--methods=fedavg,scaffold', '--grid=rounds=3', *words))
  sentence = refused(lambda: check(plans, tunes=True))
  assert "dp.clip: got 'scaffold, whose" in sentence


def test_the_price_counts_images_of_local_training(form, monkeypatch):
  monkeypatch.setattr(forecast, 'speed_of', lambda *_: Speed(24.0, 0.0, 0.0))
  made = form('--methods=fedavg,ditto', '--grid=rounds=3', '--seeds=2')
  main, _ = user_commands.load_command(monkeypatch, 'compare.py')
  text = main.__globals__['price_of'](made, plans_of(made))
  # Two trainings of two methods, of 3 rounds of 2 clients of 80 images; Ditto
  # trains two models. Each method compiles its round and its evaluation.
  row = text.splitlines()[2].split()
  assert row[-4:] == ['4', f'{2 * 480 + 2 * 960:,}', '4', 'min']
  assert '2 methods, each tuned and trained in 2 trainings' in text


def test_a_grid_is_of_typed_values(form):
  words = '--methods=fedavg,ditto', '--baseline=ditto'
  made = form(*words, '--grid=local_epochs=1,2', '--grid=learning_rate=0.1,0.2')
  assert made.baselines == ('ditto',)
  one = {'local_epochs': 1, 'learning_rate': 0.1}
  assert made.candidates['fedavg'][0] == made.candidates['ditto'][0] == one
  assert ('model', 'convnet3') in protocol.about(made).facts


def test_a_measure_may_choose_and_be_the_main_number(form):
  words = '--methods=fedavg,ditto', '--grid=learning_rate=0.1,0.2'
  about = protocol.about(form(*words, '--tune_by=loss'))
  assert about.measures == (('loss', 'min'), ('accuracy', 'max'))
  assert 'Validation chooses by loss, lower is better.' in about.protocol
  assert "tune_by: got 'f1'" in refused(form, *words, '--tune_by=f1')


def test_own_data_are_called_by_their_folder(form, tmp_path):
  folder = hospitals.write(tmp_path / 'clinics')
  words = '--methods=fedavg,local_only', '--grid=learning_rate=0.1,0.2'
  config = '--config=own_folder:fedavg', f'--config.data_dir={folder}'
  about = protocol.about(
    form(*config, *words, '--config.validation_fraction=0.2')
  )
  assert title_of(about) == '2 methods on clinics with 4 clients'
  assert about.partitions == ('clinics, natural',)


def test_a_form_may_be_one_of_its_partitions(form):
  made = form('--form=lite', '--partition=digits s=4')
  assert [*made.partitions] == ['digits s=4']


def test_the_page_names_the_models_of_groups_of_clients(form):
  words = '--methods=local_only,fd', '--grid=local_epochs=1'
  about = protocol.about(form(*words, '--config.models=convnet3,vit_tiny'))
  assert about.facts[0] == ('models', 'convnet3, vit_tiny')


@pytest.mark.parametrize(
  ('words', 'sentence'),
  [
    ('--methods=fedavg --grid=learning_rate=1,2', '--methods: got '),
    ('--methods=fedavg,moon --grid=rounds:1', "--grid: got 'rounds:1'"),
    ('--methods=fedavg,moon --seeds=1 --grid=rounds=1,2', '--seeds: got '),
    ('--methods=fedavg,moon --baseline=mon --grid=rounds=1,2', 'mean moon'),
    ('--methods=fedavg,moon --random=2 --range=mon:hp.mu=1..2', 'mean moon'),
    ('--methods=fedavg,moon --random=9 --range=rounds=1..9', None),
    ('--form=litte', 'did you mean lite?'),
    ('--form=demo --config=configs/digits.py', '--config with --form'),
    ('--form=demo --random=3', '--random with --form'),
    ('--methods=fedavg,moon --partition=s=4', '--partition without --form'),
  ],
)
def test_what_cannot_be_compared_is_a_sentence(form, words, sentence):
  if sentence is None:  # draws of few whole numbers, but as many for each
    assert form(*words.split()).trainings > 2
  else:
    assert sentence in refused(form, *words.split())


def test_without_examples_for_choosing_nothing_is_trained(
  tmp_path, monkeypatch
):
  main, file = user_commands.load_command(monkeypatch, 'compare.py')
  words = WORDS[0], '--methods=fedavg,ditto', '--grid=learning_rate=0.1,0.2'
  words = file, *words, f'--workdir={tmp_path}/c'
  sentence = refused(main, commandline.parse_words(words)[0])
  assert sentence.startswith('validation_fraction: got 0, expected a share')
  assert not [*tmp_path.iterdir()]


def test_a_frozen_form_takes_the_place_of_the_data_alone(monkeypatch):
  main, file = user_commands.load_command(monkeypatch, 'compare.py')
  words = [file, '--form=demo', '--methods=fedbabu', '--config.data_dir=/x']
  overrides, _ = commandline.parse_words(words)
  read_form = main.__globals__['read_form']
  assert read_form(overrides).base['data_dir'] == '/x'
  sentence = refused(read_form, overrides | {'rounds': '2'})
  assert 'a frozen form as it is' in sentence
