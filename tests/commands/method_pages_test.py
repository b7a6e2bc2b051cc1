"""prepare.py without a network, and the pages that methods.py writes."""

import re

import methods
from helpers import refused
from user_commands import load_command

from experiments import commandline
from fedjax_pfl.data.preparation import download

COMMAND = 'experiments/methods.py --write'


def test_without_a_network_prepare_says_what_to_do(
  tmp_path, monkeypatch, capsys
):
  # Port 9 discards: nothing leaves this machine, by a proxy neither.
  monkeypatch.setenv('no_proxy', '127.0.0.1')
  nowhere = [
    one._replace(url=f'http://127.0.0.1:9/{one.name}')
    for one in download.ARCHIVES['mnist']
  ]
  monkeypatch.setitem(download.ARCHIVES, 'mnist', nowhere)
  main, file = load_command(monkeypatch, 'prepare.py')
  words = [file, 'mnist', f'--data_dir={tmp_path}/data']
  _, names = commandline.parse_words(words, (), 'sets')
  message = refused(main, names)
  text = capsys.readouterr().out + message
  assert re.search('images-idx3-ubyte.gz: got .*Connection refused.*from', text)
  assert text.count('  as mnist-') == 4
  assert 'a machine without a network' in text
  assert not [*tmp_path.iterdir()]


def test_the_docs_have_the_current_table_and_pages():
  found = methods.files()
  for file, text in found.items():
    assert file.read_text() == text, COMMAND
  folder = methods.FILE.parent / 'methods'
  pages = {path for path in folder.iterdir() if path.suffix != '.tex'}
  assert pages == {*found} - {methods.FILE}
  assert sum('$$' in text for text in found.values()) >= 18
