"""Train what a form lacks, choose by validation, and write what there is.

Run directories are found by their content: a repeated command trains nothing
twice, and a stopped one goes on. Several jobs may share the work by `shard`,
(which, of how many): each takes whole methods.
"""

from collections.abc import Sequence
from pathlib import Path

from fedjax_pfl.core import atomic_files, progress
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.leaderboard.form import Form, settings_of, sketch_of, views_of
from fedjax_pfl.results.charts import picture
from fedjax_pfl.results.charts.svg import Panel
from fedjax_pfl.results.page import board_page
from fedjax_pfl.results.page.styles import display_name, style_of
from fedjax_pfl.results.runs import stored_counts
from fedjax_pfl.results.runs.entry import (
  METHOD,
  REFERENCE,
  Entry,
  read_entry,
)
from fedjax_pfl.results.runs.stored_counts import MARK, About, Found
from fedjax_pfl.results.statistics import board
from fedjax_pfl.results.statistics.choice import choose
from fedjax_pfl.results.tables import board_tables
from fedjax_pfl.tuning.train_all import read_group, train_groups

RUNS = 'runs'  # in the folder of a comparison
FORMATS = '.html', '.csv', '.md', '.tex', '.png', f'{MARK}.csv'


def run(
  form: Form, about: About, folder: AnyPath, shard: tuple[int, int] = (1, 1)
) -> Path:
  """Train, choose and write; return the page, with the other files beside it.

  What is there is written before a KeyboardInterrupt, that of a deadline too,
  ends it. A shard writes its counts alone.
  """
  folder, (which, number) = Path(folder), shard
  path = folder / f'{form.name}_seeds_{"_".join(map(str, form.seeds))}.html'
  if number > 1:
    path = path.with_name(f'{path.stem}{MARK}_{which}_of_{number}.csv')
  units = [*form.units()][which - 1 :: number]
  found: dict[str, list[Entry]] = {}
  try:
    for at, (partition, method) in enumerate(units, 1):
      name = display_name(method)
      progress.log(f'{partition}, {at} of {len(units)}: {name}')
      entry = train_method(form, method, partition, folder / RUNS)
      found.setdefault(partition, []).append(entry)
  finally:
    write(found, about, path)
  return path


def train_method(
  form: Form, method: str, partition: str, folder: Path
) -> Entry:
  """Return the entry of a method: tuned, and trained with every seed."""
  what, views = (form, method, partition), views_of(form, method, partition)

  def settings(candidate, seeds):
    return [settings_of(*what, candidate, seed, views) for seed in seeds]

  candidates = form.candidates[method]
  grid = [settings(one, form.tuning_seeds) for one in candidates]
  groups = train_groups(grid, folder, progress.log)
  choice, final = choose(candidates, [*map(read_group, groups)]), []
  if choice is None:
    progress.log('No setting of the grid: each diverged.')
  else:
    ends = f'; at an end of the grid: {", ".join(choice.ends)}'
    progress.log(
      f'Chosen: {board.settings_in_words(choice.fields)}, view {choice.view}: '
      f'{choice.accuracy:.1f} % on validation{ends * bool(choice.ends)}'
    )
    chosen = [settings(choice.fields, form.seeds)]
    (final,) = train_groups(chosen, folder, progress.log)
  stages = sketch_of(form, method, partition).stages
  whole = [stage.name for stage in stages if stage.full_participation]
  kind = kind_of(form, method, partition)
  return read_entry(method, kind, choice, form.seeds, final, whole)


def kind_of(form: Form, method: str, partition: str) -> str:
  """Return whether a method has the clients of the form, or its own number."""
  clients = {**form.base, **form.partitions[partition]}['num_clients']
  own = form.own.get(partition, {}).get(method, {})
  return METHOD if own.get('num_clients', clients) == clients else REFERENCE


def write(found: Found, about: About, path: Path) -> None:
  """Write page, tables, figure and counts of what has all baselines.

  Files with more rows are kept, unless these are all rows of the form. Of a
  shard, whose path is that of counts, these alone.
  """
  if path.suffix != '.html':
    stored_counts.write(found, about, path)
    progress.log(
      f'Counts: {path}; without --shard the command writes the table'
    )
    return
  made = (board.make_board(about, *one) for one in found.items())
  boards = [one for one in made if one]
  if not boards:
    progress.log('Nothing is written yet: no partition has all baselines.')
    return
  for one in boards:
    progress.log('\n'.join([f'{one.partition}:', *board.sentences(one)]))
  missing = board.not_finished(about, boards)
  for sentence in missing:
    progress.log(sentence)
  rows = [row for one in boards for row in one.rows]
  table = path.with_suffix('.csv')
  stored = table.read_bytes().count(b'\n') - 1 if table.exists() else 0
  # A finished comparison may be repeated, and stopped.
  if len(rows) < min(stored, len(about.partitions) * len(about.methods)):
    progress.log(f'{table} has {stored} rows, more than now: it is kept.')
    return
  stored_counts.write(found, about, path.with_name(f'{path.stem}{MARK}.csv'))
  board_tables.write_csv(rows, table)
  texts = {
    '.html': board_page.render(about, boards),
    '.md': board_tables.as_markdown(boards, (*missing, *about.protocol)),
    '.tex': board_tables.as_latex(boards, (*missing, *about.protocol)),
  }
  for suffix, text in texts.items():
    atomic_files.write_bytes(path.with_suffix(suffix), text.encode())
  save_figure(about, boards, path.with_suffix('.png'))
  names = ', '.join(f'{path.stem}{one}' for one in FORMATS)
  progress.log(f'In {path.parent}: {names}')


def save_figure(
  about: About, boards: Sequence[board.Board], path: Path
) -> None:
  """Save the differences to the baselines, a panel for each partition."""
  css = {method: f'c{place}' for place, method in enumerate(about.methods)}
  panels = []
  for one in boards:
    for base in one.baselines:
      title = f'{one.partition}: minus {display_name(base)}'
      panels.append(Panel(title, board_page.plot(base, one.rows, css)))
  colours = {css[method]: style_of(method).colour for method in about.methods}
  notes = ['Filled: distinguishable from 0 (Holm). Hollow: not.']
  figure = picture.draw('', panels, colours, notes)
  with path.open('wb') as stream:
    figure.savefig(stream, format='png', dpi=160)
