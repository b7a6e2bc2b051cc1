"""A page that begins with a question: its head, table and pairs of methods."""

import re

import numpy as np
from page_runs import make_run

from fedjax_pfl.report import page
from fedjax_pfl.report.page.tables import Cell, Column, make_table

FIRST, SECOND = np.array([90.0, 80.0, 70.0]), np.array([60.0, 70.0, 75.0])
TABLE = make_table('Answers', [Column('Answer')], [[Cell('<yes>')]])


def opened(path, *pairs):
  runs = [make_run(path / name, name) for name in ('fedbabu', 'fedavg')]
  begin = page.Opening('Which & why', 'It is better.', TABLE, pairs)
  return page.render(runs), page.render(runs, None, begin)


def test_title_lead_and_table_come_first(tmp_path):
  plain, text = opened(tmp_path)
  assert '<h1>Which &amp; why</h1>' in text and 'It is better.' in text
  assert text.index('&lt;yes&gt;') < text.index('id="summary"')
  assert 'Client by client' not in text
  # All below the head is that of the page without an opening.
  assert text.partition('id="summary"')[2] == plain.partition('id="summary"')[2]


def test_a_bar_for_each_client_of_a_pair(tmp_path):
  names = ['one', 'two', 'three']
  pair = page.Pair('A less B', 'fedavg', FIRST, SECOND, names, 'a note')
  _, text = opened(tmp_path, pair)
  section = text.partition('Client by client')[2].partition('</section>')[0]
  assert re.findall(r'<title>(\w+): .*?\((\S+)\)', section) == [
    ('one', '+30.0'),
    ('two', '+10.0'),
    ('three', '-5.0'),
  ]
  assert 'difference, points' in section and 'a note' in section
  # The second method's colour, as in the rest of the page.
  assert '<span class="method c1">A less B</span>' in section
