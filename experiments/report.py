"""Write a report of finished runs: one HTML page that needs no network:

  fedjax-pfl report runs/a runs/b --out=report.html

Run directories are read, never written. Runs that differ in the seed alone
become one line. Where a paper has a number for the setting of a run, it is
shown beside ours.
"""

import commandline
from absl import flags

OUT = flags.DEFINE_string('out', None, 'the page, a .html file')


def main(paths):
  from fedjax_pfl.core import progress
  from fedjax_pfl.results.page import render as page

  page.check_output(OUT.value)
  progress.log(f'Report: {page.save(paths, OUT.value, published(paths))}')


def published(paths):
  """Return {run directory: {view: the published number}}."""
  from configs.tables.common import load_cells
  from experiments.reproduction.published import published_for_run
  from fedjax_pfl.runs import run_dir

  cells, known = load_cells(), {}
  for path in paths:
    rounds = run_dir.load_result(path)['rounds']
    stored = run_dir.load_config(path)
    known[path] = published_for_run(stored, rounds, cells)
  return known


if __name__ == '__main__':
  commandline.run(
    main, required=['out'], arguments='run directories', packages=['jinja2']
  )
