"""Train what a form lacks, and choose by validation.

Run directories are found by their content: a repeated command trains nothing
twice, and a stopped one goes on.
"""

from collections.abc import Iterator
from pathlib import Path

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.compare.form import Form, Unit
from fedjax_pfl.compare.train import in_folder, train, train_groups
from fedjax_pfl.core import progress
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.runs.entry import Entry, read_entry
from fedjax_pfl.results.statistics.choice import choose, in_words


def entries(
  form: Form, folder: AnyPath, which: int = 1, number: int = 1
) -> Iterator[tuple[str, Entry]]:
  """Yield (partition, entry) of each method, tuned and trained in `folder`.

  Several jobs may share the work: job `which` of `number` takes whole methods.
  """
  units = [*form.units()][which - 1 :: number]
  for count, unit in enumerate(units, 1):
    name = paper_name(unit.method)
    progress.log(f'{unit.partition}, {count} of {len(units)}: {name}')
    yield unit.partition, train_unit(unit, Path(folder))


def train_unit(unit: Unit, folder: Path) -> Entry:
  """Return the entry of a method: tuned, and trained with every seed."""
  form, final = unit.form, []
  plan = unit.plan(unit.candidates, form.tuning_seeds)
  groups = train_groups(plan, folder, progress.log)
  main, *_ = measures = form.measures
  choice = choose(unit.candidates, groups, main)
  if choice is None:
    progress.log('No setting of the grid: each diverged.')
  else:
    ends = f'; at an end of the grid: {", ".join(choice.ends)}'
    progress.log(
      f'Chosen: {in_words(choice.fields)}, view {choice.view}: '
      f'{main.said(choice.value)} on validation{ends * bool(choice.ends)}'
    )
    plan = unit.plan([choice.fields], form.seeds)
    final = train(plan, in_folder(folder), progress.log)
  whole = [
    stage.name for stage in unit.outline.stages if stage.full_participation
  ]
  known = unit.method, unit.kind, choice, form.seeds, final, whole
  return read_entry(*known, [one.name for one in measures])
