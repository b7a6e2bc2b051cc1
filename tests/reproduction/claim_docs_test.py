"""README and docs/results.md have what results/ says of the claims."""

import re
from pathlib import Path

import pytest

from configs.tables.common import load_configs, load_table
from fedjax_pfl.reproduction.claims import figures, write
from fedjax_pfl.reproduction.queue.entries import load_queue
from fedjax_pfl.settings import parse_config

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / 'results'
COMMAND = 'python experiments/claims.py --write'


@pytest.fixture(scope='module')
def verdicts():
  configs = {name: parse_config(one) for name, one in load_configs().items()}
  claims = RESULTS / 'claims.toml'
  return write.judge(claims, RESULTS, load_table, configs, print)


def test_the_pages_are_those_of_the_results(verdicts):
  for page, text in write.texts(verdicts, RESULTS, ROOT).items():
    assert page.read_text() == text, COMMAND


def test_readme_has_a_line_for_each_claim(verdicts):
  _, rest = (ROOT / 'README.md').read_text().split(write.BEGIN)
  rows = re.findall(r'^\| (\w+) \|.*', rest.partition(write.END)[0], re.M)
  assert rows == [verdict.claim.name for verdict in verdicts]
  assert len(rows) == 8


def test_the_figures_are_those_of_the_results(verdicts, tmp_path):
  """Their numbers: an image depends on the version of matplotlib."""
  drawn = figures.save_all(verdicts, tmp_path)
  assert len(drawn) == 2
  for path in drawn:
    stored = ROOT / write.IMAGES / path.name
    assert stored.stat().st_size > 20_000
    table = stored.with_suffix('.csv').read_text()
    assert table == path.with_suffix('.csv').read_text(), COMMAND


def test_no_number_of_the_results_is_typed_by_hand():
  before, rest = (ROOT / write.DOCUMENT).read_text().split(write.BEGIN)
  typed = before + rest.partition(write.END)[2]
  assert not re.findall(r'\d+\.\d', typed)
  text = (RESULTS / 'claims.toml').read_text()
  assert '±' not in text and not re.findall(r'\d\d\.\d', text)


def test_every_cell_is_in_the_queue_or_was_run(verdicts):
  """Else nothing would ever turn 'not run' into a verdict."""
  queue = load_queue(RESULTS / 'queue.toml', load_table)
  queued = {
    str(cell.settings) for entry in queue.entries for cell in entry.cells
  }
  for verdict in verdicts:
    for beside in verdict.cells:
      term = beside.term
      assert beside.measured or str(term.cell.settings) in queued, term.where
