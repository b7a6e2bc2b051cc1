"""docs/howto/from_pfllib.md names every option of PFLlib, and options of ours.

OPTIONS are those of PFLlib's system/main.py at d832e76.
"""

import re

from helpers import refused
from pages import ROOT

from configs import common
from fedjax_pfl import algorithms
from fedjax_pfl.algorithms import own_defaults
from fedjax_pfl.settings import parse_config
from fedjax_pfl.settings.schema import FIELDS

PAGE = ROOT / 'docs' / 'howto' / 'from_pfllib.md'
OPTIONS = """
  goal device device_id dataset num_classes model batch_size
  local_learning_rate learning_rate_decay learning_rate_decay_gamma
  global_rounds top_cnt local_epochs algorithm join_ratio random_join_ratio
  num_clients prev times eval_gap save_folder_name auto_break dlg_eval dlg_gap
  batch_num_per_client num_new_clients fine_tuning_epoch_new feature_dim
  vocab_size max_len few_shot client_drop_rate train_slow_rate send_slow_rate
  time_select time_threthold beta lamda mu K p_learning_rate M itk alphaK sigma
  alpha plocal_epochs tau fine_tuning_epochs dr_learning_rate L noise_dim
  generator_learning_rate hidden_dim server_epochs localize_feature_extractor
  server_learning_rate eta rand_percent layer_idx mentee_learning_rate T_start
  T_end momentum kl_weight first_stage_bound fedcross_alpha
  collaberative_model_select_strategy
"""
NO_FIELDS = (
  *('--config', '--workdir', 'fedjax-pfl sweep --seeds', 'config.json'),
  *('fedavg_cnn', 'resnet18_imagenet'),
)


def table():
  """Return {options of a row: what stands beside them}."""
  text = PAGE.read_text().partition('| PFLlib | here |')[2]
  rows = re.findall(r'^\| (`.*?) \| (.*) \|$', text, re.MULTILINE)
  return {tuple(re.findall('`(.*?)`', left)): right for left, right in rows}


def test_every_option_of_pfllib_has_a_row():
  assert sorted(sum(table(), ())) == sorted(OPTIONS.split())


def test_every_name_beside_it_is_a_field_of_the_method_that_is_named():
  files = {name.replace('_', ''): name for name in algorithms.available()}
  for clause in '; '.join(table().values()).split('; '):
    words = re.findall(r'\w+', re.sub('`.*?`', '', clause).lower())
    methods = [files[word] for word in words if word in files]
    for code in re.findall('`(.*?)`', clause):
      field = code.partition('=')[0]
      if field.startswith('hp.'):
        fields = [*map(own_defaults, methods)]
        assert fields and all(field[3:] in one for one in fields), clause
      else:
        assert field in FIELDS or field in NO_FIELDS, clause


def test_a_name_of_pfllib_is_answered_with_ours():
  for method, name, meant in (
    ('ditto', 'mu', 'lam'),
    ('moon', 'tau', 'temperature'),
    ('pfedme', 'K', 'inner_steps'),
    ('feddbe', 'kl_weight', 'kappa'),
  ):
    config = common.base(algorithm=method, hp={name: 1}).to_dict()
    message = refused(parse_config, config)
    assert f'Likely cause: hp.{meant} is meant' in message
