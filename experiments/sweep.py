"""Train a config with every combination of some fields, and compare them:

  fedjax-pfl sweep --config=digits:fedprox \\
      --grid learning_rate=0.1,0.03,0.01 --grid hp.mu=0.01,0.1 --seeds=3 \\
      --config.validation_fraction=0.2 --tune=validation

Or random ones: --random=20 --range learning_rate=0.001..0.3, on a log scale
where both ends are positive; with a grid, so many for each of its combinations.
Every one is an ordinary run in --workdir. The same command continues a sweep
that was stopped, and trains nothing twice; a larger grid adds to a smaller one.
Several jobs may give it at once, with --seeds=0:3 and --seeds=3:6 or with the
same seeds: a run that one of them trains is left to it by the others.

--tune=validation ends with the setting that is best on the examples of
validation_fraction, its lead over the next, whether seeds tell them apart, and
the command of the best; --tune_by=macro_f1 chooses by a metric
(--config.metrics=macro_f1, or your own FILE.py:NAME), or by loss.
--out=sweep.html writes the report of all runs.
"""

import shlex

import commandline
from absl import flags

CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
GRID = flags.DEFINE_multi_string(
  'grid', [], 'a field and its values: learning_rate=0.1,0.03'
)
RANGE = flags.DEFINE_multi_string(
  'range', [], 'a field and the range of --random: learning_rate=0.001..0.3'
)
RANDOM = flags.DEFINE_integer(
  'random', None, 'number of random combinations', lower_bound=1
)
SEEDS = flags.DEFINE_string(
  'seeds', '1', 'number of seeds, from 0 on; or 3:6 for the seeds 3, 4, 5'
)
TUNE = flags.DEFINE_enum(
  'tune', None, ['validation'], 'choose the best combination on validation'
)
TUNE_BY = flags.DEFINE_string(
  'tune_by', None, 'choose by this measure on validation, not by accuracy'
)
WORKDIR = flags.DEFINE_string('workdir', 'runs', 'where the run directories go')
OUT = flags.DEFINE_string('out', None, 'the report of all runs, a .html file')


def main(overrides):
  from experiments.sweep_table import as_table, tried_on_validation
  from fedjax_pfl.compare import plan as plans
  from fedjax_pfl.compare.combinations import parse_seeds
  from fedjax_pfl.compare.train import train_groups
  from fedjax_pfl.core import errors, progress
  from fedjax_pfl.evaluation import own_metrics
  from fedjax_pfl.results.statistics.choice import best_of, verdict
  from fedjax_pfl.training import compile_cache

  if OUT.value:
    errors.check_installed('--out', 'jinja2')  # before its import
    from fedjax_pfl.results.page import render as page

    page.check_output(OUT.value)
  seeds = parse_seeds(SEEDS.value)
  combinations = read_combinations(overrides)
  tunes = bool(TUNE.value or TUNE_BY.value)
  configs = [
    commandline.read_settings(CONFIG.value, {**overrides, **combination})
    for combination in combinations
  ]
  if TUNE_BY.value and configs[0]['select'] == 'validation':
    overrides['tune_by'] = TUNE_BY.value  # of its rounds, too
    configs = [config | {'tune_by': TUNE_BY.value} for config in configs]
  by = TUNE_BY.value or configs[0]['tune_by']
  measure = own_metrics.chooser(by, configs[0]['metrics'], configs[0]['loss'])
  compile_cache.cache_programs(progress.log)
  plan = plans.of_combinations(combinations, configs, seeds)
  plans.check([plan], tunes=tunes)
  groups = train_groups(plan, WORKDIR.value, progress.log)
  tried = tried_on_validation(groups, measure) if tunes else []
  progress.log(as_table(combinations, groups, tried, measure))
  if tried:
    progress.log(verdict(combinations, tried))
    best = best_of(tried)
    paths = [str(run.path) for run in groups[best]]
    progress.log(f'Its runs: {shlex.join(paths)}')
    command = command_of({**overrides, **combinations[best]})
    progress.log(f'Its command:\n{command}')
  if OUT.value:
    # The mean of the seeds that are left of a setting would be too high.
    paths = [run.path for runs in groups for run in runs]
    if paths:
      progress.log(f'Report: {page.save(paths, OUT.value, None, measure)}')
    else:
      progress.log('No report: a run of every setting diverged.')


def read_combinations(overrides):
  """Return the combinations that the flags ask for, beside the overrides."""
  from fedjax_pfl.compare import combinations

  number = RANDOM.value
  varied = combinations.parse(GRID.value, RANGE.value, number, overrides)
  return combinations.combine(varied[''], number or 0)


def command_of(fields):
  """Return the command that runs one combination."""
  given = [f'--config.{name}={value}' for name, value in fields.items()]
  flags = [f'--config={CONFIG.value}', *given, '--workdir=runs/best']
  return ' \\\n    '.join(['fedjax-pfl train', *map(shlex.quote, flags)])


if __name__ == '__main__':
  commandline.run(main, required=['config'])
