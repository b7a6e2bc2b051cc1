"""Train a plan, or a form; the directory of a run is found by its content.

Finished runs are reused and stopped ones continue, so that a sweep that was
killed is repeated by the same command, and nothing is trained twice.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fedjax_pfl.algorithms import paper_name
from fedjax_pfl.compare.form import Form, Unit
from fedjax_pfl.compare.plan import Plan, grouped
from fedjax_pfl.core import progress, user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import AnyPath
from fedjax_pfl.results.runs.entry import Entry, read_entry
from fedjax_pfl.results.runs.run import Run, read_group
from fedjax_pfl.results.statistics.choice import choose, in_words
from fedjax_pfl.runs import identity, run_dir
from fedjax_pfl.settings import RESUMABLE, Settings, parse_config, to_config
from fedjax_pfl.settings.validate import program_key
from fedjax_pfl.training import (
  build,
  divergence,
  keys,
  many_runs,
  privacy_budget,
)

Log = Callable[[str], None]
# Of settings and the fingerprint of their data: the directory of the run.
PathOf = Callable[[Settings, str], Path]


def train(plan: Plan, path_of: PathOf, log: Log) -> list[Path]:
  """Train what is not finished; return the run directory of each training.

  A training that diverges ends alone, without a result, and is not repeated.
  Runs that differ in seeds and traced numbers share a program; finished ones
  among them count for its shapes, so that a repeated sweep has the bits of an
  unbroken one, if no setting diverged. Settings that differ in fields which
  change no number are one run.

  A run that another process trains is left to it, and looked at again when all
  others are done; one that is still held then is refused.
  """
  data_of = keys.make_data_of(log)
  paths = [path_of(settings, data_of(settings)) for settings, _ in plan]
  groups: dict[str, dict[Path, Settings]] = {}
  known, todo = set(), set()
  for (settings, _), path in zip(plan, paths, strict=True):
    if sentence := divergence.sentence_of(path):
      log(
        f'{path.name} diverged before and is not trained again (without '
        f'{divergence.NAME} in its directory it is). {sentence}'
      )
    elif path not in known:
      known.add(path)
      settings = _as_started(settings, path)
      groups.setdefault(program_key(settings), {})[path] = settings
      if not run_dir.is_finished(path):
        todo.add(path)
  log(f'{len({*paths})} runs, {len(todo)} of them to be trained or continued.')
  log = functools.cache(log)  # each seed has the same lines
  for is_last in (False, True):
    held: list[Path] = []
    for runs in groups.values():
      if todo & {*runs}:
        leave = lambda at, to=held, group=(*runs,): to.append(group[at])
        many_runs.train_many(_build(runs, log), [*runs], log, leave)
    todo = {*held}
    if todo and not is_last:
      log(f'{len(todo)} runs were left to other processes; now again.')
  if todo:
    raise bad_input(
      'runs',
      got=f'{", ".join(sorted(map(str, todo)))}, which other processes still '
      'train',
      expected='every run to be finished; the others are',
      choices=['the same command, when those are done'],
    )
  if any(settings.dp for settings, _ in plan):
    for folder in dict.fromkeys(path.parent for path in paths):
      log(privacy_budget.spent_in(folder))
  return paths


def train_groups(plan: Plan, folder: AnyPath, log: Log) -> list[list[Run]]:
  """Return the runs of each setting; [] of one of which a seed diverged."""
  paths = train(plan, in_folder(folder), log)
  return [*map(read_group, grouped(plan, paths))]


def in_folder(folder: AnyPath) -> PathOf:
  """Return where runs lie in a folder, by all that their results depend on."""

  def path_of(settings: Settings, data: str) -> Path:
    start = keys.run_key(settings.init_from) if settings.init_from else ''
    key = keys.result_key(settings, data, start)
    return Path(folder) / name_of(settings, key)

  return path_of


def name_of(settings: Settings, key: str) -> str:
  """Return 'fedavg_emnist_byclass_seed0_0123456789abcdef'."""
  dataset = settings.data.dataset.replace('/', '_')
  method = user_code.without_digest(settings.algorithm).rpartition(':')[2]
  return f'{method}_{dataset}_seed{settings.seed}_{key}'


def _build(runs: Mapping[Path, Settings], log: Log) -> list[build.Experiment]:
  """Return the experiments of one group, on the same images."""
  built: dict[int, build.Experiment] = {}  # by seed
  experiments = []
  for settings in runs.values():
    # A budget and times are those of the steps of one setting.
    is_bound = settings.dp or settings.speeds
    if is_bound or settings.seed not in built:
      experiment = build.build_experiment(settings, log)
      first = next(iter(built.values()), experiment)
      built[settings.seed] = many_runs.with_images_of(experiment, first)
    experiments.append(built[settings.seed].with_settings(settings))
  return experiments


def _as_started(settings: Settings, path: Path) -> Settings:
  """Return the settings; of a stopped run its own, but for what may change.

  And for code of the user's own, of which a run directory only has the name.
  """
  if not (path / identity.CONFIG).is_file():
    return settings
  given = to_config(settings)
  new = {name: given[name] for name in (*RESUMABLE, *user_code.FIELDS)}
  return parse_config({**run_dir.load_config(path)['config'], **new})


# ---- a form: tuned, then trained ---------------------------------------------


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
  names = [measure.name for measure in measures]
  return read_entry(
    unit.method, unit.kind, choice, form.seeds, final, whole, names
  )
