"""The page in a real browser: tables sort and filter, and a phone can show it.

Chromium is started once, and asked all questions in a frame of 360 pixels.
"""

import json
import re
import shutil
import subprocess

import pytest
from page_runs import CORRECT, make_run

from fedjax_pfl.results.page import render as page

CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')
pytestmark = pytest.mark.skipif(
  CHROMIUM is None, reason='no chromium; "make browser" installs it on Debian'
)
PROBE = """
const frame = document.querySelector('iframe');
frame.onload = () => {
  const page = frame.contentDocument, answers = {};
  const table = page.querySelector('table.data');
  const column = (at) => [...table.tBodies[0].rows]
    .filter((row) => row.offsetHeight > 0)
    .map((row) => row.cells[at].firstChild.textContent.trim());
  const press = (at) => table.tHead.rows[0].cells[at]
    .querySelector('button').click();
  answers.given = column(0);
  press(2);
  answers.highest_first = column(2);
  answers.direction = table.tHead.rows[0].cells[2].getAttribute('aria-sort');
  press(2);
  answers.lowest_first = column(2);
  press(0);
  answers.by_name = column(0);
  const input = page.querySelector('input[type=search]');
  input.value = 'fed AV';
  input.dispatchEvent(new Event('input'));
  answers.filtered = column(0);
  answers.count = page.querySelector('output').textContent;
  answers.width = page.documentElement.scrollWidth;
  answers.drawings = page.querySelectorAll('figure svg').length;
  const size = getComputedStyle(page.querySelector('svg .end')).fontSize;
  answers.text = parseFloat(size) * page.querySelector('figure svg')
    .getBoundingClientRect().width / 560;
  document.title = 'answers ' + JSON.stringify(answers);
};
frame.srcdoc = PAGE;
"""


@pytest.fixture(scope='module')
def asked(tmp_path_factory):
  """Return the answers of the page, and the errors of the browser."""
  folder = tmp_path_factory.mktemp('browser')
  runs = []
  for place, name in enumerate(['fedrep', 'fedavg', 'moon', 'fedbabu']):
    finetuned = [place, *CORRECT['finetuned'][1:]]
    views = {**CORRECT, 'finetuned': finetuned}
    runs.append(make_run(folder / name, name, views=views))
  views = {'personal': CORRECT['initial']}
  runs.append(make_run(folder / 'local', 'local_only', views=views))
  # The end of a script, even in a string, would end the probe.
  text = json.dumps(page.render(runs)).replace('</', '<\\/')
  html = folder / 'probe.html'
  html.write_text(
    '<!doctype html><meta charset="utf-8"><iframe width="360" height="900">'
    f'</iframe><script>const PAGE = {text};{PROBE}</script>',
    encoding='utf-8',
  )
  run = subprocess.run(
    [CHROMIUM, '--headless', '--no-sandbox', '--disable-gpu']
    + [f'--user-data-dir={folder / "profile"}', '--enable-logging=stderr']
    + ['--virtual-time-budget=5000', '--dump-dom', html.as_uri()],
    capture_output=True,
    text=True,
    timeout=120,
  )
  found = re.search(r'<title>answers (.*?)</title>', run.stdout)
  errors = re.findall(r'.*CONSOLE.*', run.stderr)
  assert found, errors or run.stderr[-2000:]
  return json.loads(found[1].replace('&amp;', '&')), errors


def test_a_table_sorts_both_ways_and_empty_cells_come_last(asked):
  answers, errors = asked
  assert errors == []
  assert answers['given'][0] == 'FedRep'
  shown = answers['highest_first']
  values = [float(text.split()[0]) for text in shown]
  assert values == sorted(values, reverse=True) and len(set(values)) == 5
  assert answers['direction'] == 'descending'
  assert answers['lowest_first'] == shown[::-1]
  assert answers['by_name'] == sorted(answers['given'])


def test_a_table_is_filtered_by_words(asked):
  answers, _ = asked
  assert answers['filtered'] == ['FedAvg']
  assert answers['count'] == '1 of 5 rows'


def test_a_phone_shows_it_without_scrolling_sideways(asked):
  answers, _ = asked
  assert answers['width'] <= 360
  assert answers['drawings'] >= 8
  assert answers['text'] > 9  # pixels
