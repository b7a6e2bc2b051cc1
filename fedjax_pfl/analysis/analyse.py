"""Answer a question about finished runs with a figure and a CSV."""

import pathlib
from collections.abc import Sequence

from fedjax_pfl.analysis import features, id_ood
from fedjax_pfl.analysis.open_run import Edit, Log, Options, open_runs
from fedjax_pfl.core.errors import check_known
from fedjax_pfl.report.charts import picture
from fedjax_pfl.report.figure_file import check_output, save

QUESTIONS = {'id_ood': id_ood, 'features': features}


def analyse(
  what: str,
  workdirs: Sequence[str],
  output: str,
  options: Options,
  log: Log,
  edit: Edit | None = None,
) -> pathlib.Path:
  """Save the figure and, beside it, the CSV; return the figure's path.

  >>> analyse('id_ood', ['runs/a'], 'a.png', Options(), print)
  """
  known = 'a known analysis'
  cause = 'a typing error'
  check_known('what', [what], expected=known, choices=QUESTIONS, cause=cause)
  check_output(output)
  runs = open_runs(workdirs, log, edit)
  answer = QUESTIONS[what].answer(runs, options, log)
  if answer.text:
    log(answer.text)
  figure = picture.draw('', answer.panels, answer.colours, notes=answer.notes)
  return save(figure, output, QUESTIONS[what].HEADER, answer.rows)
