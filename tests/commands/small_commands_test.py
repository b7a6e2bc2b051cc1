"""prepare.py without a network, and the tables that methods.py prints."""

import re

import pytest
from user_commands import refusal, run

from experiments import methods
from fedjax_pfl.algorithms import available
from fedjax_pfl.analysis.method_table import method_table, new_client_table

COMMAND = 'experiments/methods.py --write'
# Port 9 discards: nothing leaves this machine.
NO_NETWORK = {
  f'{name}_proxy': 'http://127.0.0.1:9' for name in ('http', 'https')
}


def test_without_a_network_prepare_says_what_to_do(tmp_path):
  done = run('prepare', 'mnist', f'--data_dir={tmp_path}/data', **NO_NETWORK)
  text = done.stdout + refusal(done)
  assert re.search('images-idx3-ubyte.gz: got .*Connection refused.*from', text)
  assert text.count('  as mnist-') == 4
  assert 'a machine without a network' in text
  assert not [*tmp_path.iterdir()]


def test_prepare_wants_names(tmp_path):
  done = run('prepare', f'--data_dir={tmp_path}', **NO_NETWORK)
  assert 'names of image sets' in refusal(done)


@pytest.mark.long
def test_the_docs_have_the_current_table():
  _, table, _ = methods.split_file(methods.METHODS)
  origins = methods.golden_origins(available())
  assert table.strip() == method_table(origins), COMMAND


def test_the_docs_say_what_a_new_client_does():
  _, table, _ = methods.split_file(methods.NEW_CLIENTS)
  assert table.strip() == new_client_table(), COMMAND


def test_golden_cases_are_counted_by_the_code_that_made_them():
  origins = methods.golden_origins(available())
  assert origins['fedbabu'] == 'FedBABU 2' and origins['centralized'] == 'none'
  assert origins['apfl'] == 'independent 4, SuPerFed 1'
