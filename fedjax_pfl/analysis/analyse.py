"""From a question and run directories to a picture and its numbers."""

import pathlib
from collections.abc import Sequence

from experiments.answers import (
  class_curves,
  features,
  id_ood,
  similarity,
  training,
)
from experiments.answers.common import Log, Opened, Options
from experiments.commandline import Overrides
from experiments.rebuild import read_run, rebuild
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.report.saving import check_output, save

QUESTIONS = {
  'id_ood': id_ood,
  'class_curves': class_curves,
  'similarity': similarity,
  'features': features,
  'training': training,
}


def answer(
  what: str,
  workdirs: Sequence[str],
  output: str,
  options: Options,
  overrides: Overrides,
  log: Log,
) -> pathlib.Path:
  """Save the picture and the CSV; return the picture's path."""
  if what not in QUESTIONS:
    raise bad_input(
      'what',
      got=what,
      expected='a known analysis',
      choices=QUESTIONS,
      cause='a typing error',
    )
  check_output(output)
  question = QUESTIONS[what]
  runs = open_runs(workdirs, overrides, log, with_data=question.WITH_DATA)
  result = question.ask(runs, options, log)
  if result.text:
    log(result.text)
  return save(result.figure, output, result.header, result.rows)


def open_runs(
  workdirs: Sequence[str], overrides: Overrides, log: Log, *, with_data: bool
) -> list[Opened]:
  """Return the runs, in the order in which they were given."""
  read = [read_run(workdir, overrides, log) for workdir in workdirs]
  names = [settings['algorithm'] for settings, _ in read]
  runs = []
  for workdir, (settings, data) in zip(workdirs, read, strict=True):
    path, name = pathlib.Path(workdir), settings['algorithm']
    label = name if names.count(name) == 1 else f'{name} ({path.name})'
    rebuilt = rebuild(settings, data, overrides, log) if with_data else None
    runs.append(Opened(label, path, settings, rebuilt))
  return runs
