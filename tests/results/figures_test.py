"""From runs and partitions to drawings and files, and the numbers behind."""

import dataclasses
import math
import re
import sys
from collections import Counter

import numpy as np
import pytest
from helpers import read_rows
from matplotlib.colors import to_hex
from page_runs import make_run
from user_commands import load_command

from experiments import commandline, overview
from fedjax_pfl.algorithms import available
from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.results.charts import (
  figure_file,
  lines,
  partition,
  picture,
  rows,
  svg,
)
from fedjax_pfl.results.page import sections, styles
from fedjax_pfl.results.page.styles import STYLES, style_of

MIXTURES = {'initial': [2, 4], 'mix_0.5': [18, 16], 'mix_1.0': [10, 10]}
BEST = {'test_best_view': {'mix': {'together': {'view': 'mix_0.5'}}}}
NOTE = 'mix_0.5 of SuPerFed is chosen by the tests, which is optimistic.'


def words(figure):
  return [text.get_text() for text in figure.axes[0].texts]


def test_charts_of_the_page_are_drawn():
  """With the colours of the methods, and the words."""
  before, after = np.array([10.0, 20, 30]), np.array([40.0, 50, np.nan])
  change = rows.Change('FedAvg', 'c0', before, after)
  shown = [
    svg.Panel('Clients', rows.plot_clients([change]), 'Dot: a client.'),
    partition.partition('Training', np.eye(3, dtype=int)[:2] * 9, [4, 5]),
  ]
  colours = {'c0': styles.STYLES['fedavg'].colour}
  had_pyplot = 'matplotlib.pyplot' in sys.modules
  figure = picture.draw('A & b', shown, colours, notes=['A long note. ' * 30])
  # pyplot has global state, and opens windows.
  assert ('matplotlib.pyplot' in sys.modules) == had_pyplot
  texts = words(figure)
  assert {'A & b', 'Clients', 'Dot: a client.', 'FedAvg', 'client'} <= {*texts}
  assert sum('A long note.' in text for text in texts) > 1  # broken
  shapes = figure.axes[0].patches
  drawn = {to_hex(one.get_facecolor()) for one in shapes}
  assert colours['c0'].lower() in drawn


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
  (tmp_path / 'file').touch()
  dots = partition.partition('Training', np.eye(2, dtype=int), [0, 1])
  figure = picture.draw('', [dots], {})
  for name, message in (
    ('file/a.png', r'out: got .*file/a.png.*, expected a'),
    ('a', r'Choices: \.png, \.pdf, \.svg'),
  ):
    with pytest.raises(BadInput, match=message):
      figure_file.save(figure, tmp_path / name, [], [])
  assert [one.name for one in tmp_path.iterdir()] == ['file']


def test_the_best_method_is_on_top(tmp_path):
  """One view has no before; without a finite mean a method is the last."""
  views = {
    'fedavg': {'initial': [4], 'other': [18], 'finetuned': [14]},
    'fedbabu': {'initial': [6], 'finetuned': [16]},
    'local_only': {'personal': [15]},
    'superfed': MIXTURES,
  }
  runs = [
    make_run(tmp_path / name, name, views=one, classes=None, more=BEST)
    for name, one in views.items()
  ]
  runs += [make_run(tmp_path / 'empty', 'fedper', tests=0), runs[0]]
  out = overview.save_overview(runs, tmp_path / 'new' / 'methods.png')
  assert out.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n'
  rows = [[*row.values()] for row in read_rows(out.with_suffix('.csv'))]
  assert rows == [
    # Of mixtures the last is the client's own model alone.
    ['SuPerFed', '15.0000', '85.0000', '', '', '80.0000'],
    ['FedBABU', '30.0000', '80.0000', '', '', '80.0000'],
    ['Local only', '', '75.0000', '', '', '75.0000'],
    ['FedAvg', '20.0000', '70.0000', '', '', '70.0000'],
    ['FedPer', '', '', '', '', ''],
  ]
  shown = words(overview.draw(overview.sorted_groups(runs[2:4])))
  assert NOTE in shown and 'Personalisation on digits' in shown
  assert shown[shown.index('Local only') + 1] == '75.0'
  (group,) = overview.sorted_groups(runs[1:2])
  before = group.first.result['views']['initial']
  before |= {'mean': None, 'std': None}  # not finite
  again = group._replace(runs=(dataclasses.replace(group.first),))
  found = overview.numbers(again)
  assert math.isnan(found[0]) and found[1] == 80


def test_three_seeds_of_a_method_are_one_line_with_an_interval(tmp_path):
  runs = []
  for seed, correct in enumerate((14, 16, 18)):
    views = {'initial': [2] * 4, 'finetuned': [correct] * 4}
    folder = tmp_path / str(seed)
    runs.append(make_run(folder, 'fedavg', views=views, seed=seed))
  (group,) = overview.sorted_groups(runs)
  found = overview.numbers(group)
  assert found[1] == 80  # seeds: 70, 80, 90
  # 4.3027 is the quantile of Student's t with two degrees of freedom.
  assert found[3] - 80 == pytest.approx(4.3027 * 10 / 3**0.5, rel=1e-4)
  assert sections.SEVERAL in sections.levels_in_words([group])


# ---- the command that draws a partition


@pytest.fixture
def command(monkeypatch):
  """Return the command as a function of its arguments."""
  main, file = load_command(monkeypatch, 'draw_partition.py')
  given = f'--config={commandline.ROOT}/configs/digits.py:fedbabu'
  words = [file, given, '--config.partition=dirichlet']
  return lambda *more: main(
    commandline.parse_words([*words, *more], ['config', 'out'])[0]
  )


def test_the_command_draws_both_splits(command, tmp_path, capsys):
  picture = tmp_path / 'new' / 'x.png'
  command('--config.dirichlet_beta=0.02', f'--out={picture}')
  lines = capsys.readouterr().out.splitlines()
  assert lines[-1] == f'Figure: {picture}'
  assert any('Clients without training' in line for line in lines)
  held = Counter()
  for row in read_rows(picture.with_suffix('.csv')):
    held[row['split']] += int(row['examples'])
  assert held == {'training': 1442, 'testing': 355}


def test_a_mistake_leaves_no_file(command, tmp_path):
  with pytest.raises(BadInput, match='did you mean shards_per_client'):
    command(f'--out={tmp_path}/x.png', '--config.shards_per_cleint=2')
  assert not [*tmp_path.iterdir()]


# ---- drawings, and the looks of methods that no two share


def attributes(drawing, tag, name):
  """Return the attribute of every element of this kind."""
  return re.findall(rf'<{tag}[^>]* {name}="([^"]*)"', drawing)


def one_line(label, x, y):
  return lines.Series(label, 'c0', (), 'o', np.array(x, float), np.array(y))


def test_a_line_stands_where_its_numbers_are():
  line = one_line('a < b', [0, 5, 10], [0.0, np.nan, 100])
  (panel,) = lines.curves('', [line], 'rounds', 'accuracy')
  drawn = panel.svg
  (data,) = re.findall(r'<path d="([^"]*)" class="line"', drawn)
  left, top = lines.LEFT, lines.TOP
  right, bottom = lines.WIDTH - lines.RIGHT, lines.HEIGHT - lines.BOTTOM
  # Broken where a number is missing, not drawn across.
  assert data == f'M{left} {bottom}M{right} {top}'
  assert '<title>a &lt; b, 10: 100.0</title>' in drawn
  assert drawn.count('<title>') == 2


def test_gains_are_bars_and_losses_are_hollow():
  before, after = np.array([10.0, 50, 30, np.nan]), np.array([60.0, 40, 30, 9])
  change = rows.Change('x', 'c0', before, after)
  assert rows.ends_of([change]) == (-10, 50)
  drawn = rows.plot_gains(change, 'abcd'.__getitem__, (-10, 50))
  assert re.findall(r'<title>(.)', drawn) == ['a', 'c', 'b']  # sorted
  assert attributes(drawn, 'rect', 'class') == ['bar', 'bar', 'bar lost']
  heights = [float(h) for h in attributes(drawn, 'rect', 'height')]
  assert heights[0] == pytest.approx(5 * heights[2], rel=0.02)
  ticks = [svg._tick(mark, True)[1] for mark in (-0.2, 0.0, 0.2, 1.0)]
  assert ticks == ['-0.2', '0', '+0.2', '+1']


def test_dots_have_the_area_of_their_counts():
  counts = np.array([[100, 25, 0], [0, 0, 0], [100, 100, 100]])
  drawn = partition.partition('', counts, [4, 5, 6]).svg
  sizes = [float(one) for one in attributes(drawn, 'path', 'stroke-width')]
  assert sizes[0] == sizes[2] == pytest.approx(2 * sizes[1], abs=0.2)
  assert drawn.count('class="empty"') == 1
  assert re.findall(r'<title>(.*?)</title>', drawn) == [
    'client 4: 125 examples of 2 classes',
    'client 5: 0 examples of 0 classes',
    'client 6: 300 examples of 3 classes',
  ]


# ---- a method looks the same in every figure and unlike all others


def test_every_method_has_a_look_of_its_own_that_can_be_drawn():
  looks = STYLES.values()
  for field in ('colour', 'dark'):
    assert len({getattr(style, field) for style in looks}) == len(looks)
  assert len({style.dash for style in looks}) > 4
  markers = {style.marker for style in looks}
  drawn = {svg.marker(marker, 10.0, 10.0, 4.0, 'mark') for marker in markers}
  assert len(drawn) == len(markers)
  pairs = {style_of(name)[:4:3] for name in available()}  # colour and marker
  assert len(pairs) == len(available())


def test_a_method_that_is_not_listed_has_a_look():
  one, other = style_of('fednap'), style_of('fednod')
  # By no hash() of Python's, which differs between processes.
  assert (one.colour, other.colour) == ('#CC3311', '#661100')
  mine = 'code/nap.py:fednap#4f0c8e21ab37'
  assert style_of(mine) == style_of(mine.partition('#')[0]) == one
  assert style_of(f'run (1)/{mine}') == one
