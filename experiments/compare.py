"""Compare your method with others, each tuned alike:

  fedjax-pfl compare --config=digits:fedavg \\
      --methods=mine.py:Mine,fedavg,fedbabu,ditto --seeds=5 \\
      --config.validation_fraction=0.2 --grid learning_rate=0.003,0.01,0.03

Any config and data do. Each method is trained with every setting of the grid on
the first seed; validation examples choose; the choice is trained with the other
seeds. --random=6 draws as many settings for each method instead, of fields of
all (--range learning_rate=0.001..0.3) and of one more (--range
ditto:hp.lam=0.05..5). A method has the fields of the config and its own
defaults; that of the config has the config's hyperparameters. A field of one
method alone: --grid fml:hp.student=convnet3, as many values for each.
Fine-tuning has the rate that is tried, or 0.3, 0.1 or 0.03 times it: validation
chooses among fits of one trained model, which costs evaluations alone, unless
--config.finetune.learning_rate is given. --tune_by=macro_f1 chooses and
compares by a metric (--config.metrics=macro_f1, or your own FILE.py:NAME), or
by loss, with accuracy beside it.

  fedjax-pfl compare --form=digits    (make leaderboard)

This is a frozen form of configs/leaderboard.py: digits, cifar10, demo, lite,
full or natural; --methods are yours beside its baselines, and
--partition='digits s=4' is one of its partitions alone, in a --workdir of its
own. Writes a page, a table (CSV, Markdown, LaTeX), a figure, and the counts of
every client, from which --again=FOLDER computes all of them again. The same
command continues; --shard=2/8 is the second of eight jobs that share --workdir;
--dry-run prints the price alone.
"""

import itertools
from pathlib import Path

import commandline
from absl import flags

RUNS = 'runs'  # in the folder of a comparison
CONFIG = flags.DEFINE_string('config', None, commandline.CONFIG)
FORM = flags.DEFINE_string('form', None, 'a frozen form instead of a config')
PARTITION = flags.DEFINE_string('partition', None, 'of the form; all of them')
METHODS = flags.DEFINE_list('methods', [], 'names of methods, or FILE.py:NAME')
BASELINE = flags.DEFINE_list(
  'baseline', [], 'with which others are compared; the first of --methods'
)
GRID = flags.DEFINE_multi_string(
  'grid', [], 'a field, or METHOD:FIELD, and its values: learning_rate=0.1,0.03'
)
RANGE = flags.DEFINE_multi_string(
  'range', [], 'a field, or METHOD:FIELD, and the range of --random'
)
RANDOM = flags.DEFINE_integer(
  'random', None, 'number of random settings of each method', lower_bound=1
)
SEEDS = flags.DEFINE_string(
  'seeds', None, 'number of seeds, from 0 on; or 3:6 for the seeds 3, 4, 5'
)
TUNING = flags.DEFINE_string(
  'tuning_seeds', None, 'seeds that choose, as --seeds; the first of --seeds'
)
TUNE_BY = flags.DEFINE_string(
  'tune_by', None, 'choose and compare by this measure, not by accuracy'
)
WORKDIR = flags.DEFINE_string(
  'workdir', 'runs/compare', 'where runs, page and tables go'
)
SHARD = flags.DEFINE_string('shard', '1/1', 'WHICH/OF for one of several jobs')
DRY_RUN = flags.DEFINE_bool('dry-run', False, 'print the price, and stop')
AGAIN = flags.DEFINE_string(
  'again', None, 'a file of counts, or a folder: all tables from it alone'
)

# What a form states, for itself.
OF_CONFIG = CONFIG, BASELINE, GRID, RANGE, RANDOM, TUNING, TUNE_BY


def main(overrides):
  from fedjax_pfl.compare.form import plans_of
  from fedjax_pfl.compare.plan import check
  from fedjax_pfl.core import progress
  from fedjax_pfl.training import compile_cache

  if AGAIN.value:
    compute_again()
    return
  which, number = read_shard()
  form = read_form(overrides)
  plans = plans_of(form)
  check(plans, tunes=True)
  if DRY_RUN.value:
    progress.log(price_of(form, plans))
    return
  compile_cache.cache_programs(progress.log)
  run(form, Path(WORKDIR.value), which, number)


def price_of(form, plans):
  """Return what the form takes on this machine, as text."""
  from fedjax_pfl.compare.forecast import forecast, total
  from fedjax_pfl.core import progress
  from fedjax_pfl.results.tables.table import align, time_in_words

  plan = [planned for plan in plans for planned in plan]
  costs = forecast(plan, progress.log)
  rows = [('', 'trainings', 'images', 'time')]
  for partition in form.partitions:
    part = total(
      cost
      for planned, cost in zip(plan, costs, strict=True)
      if planned.labels['partition'] == partition
    )
    numbers = f'{part.trainings:,}', f'{part.images:,.0f}'
    rows.append((partition, *numbers, time_in_words(part.seconds)))
  whole = total(costs)
  return (
    f'{align(rows)}\n{len(form.methods)} methods, each tuned and trained in '
    f'{form.trainings} trainings: {whole.images:,.0f} images of local '
    f'training, {time_in_words(whole.seconds)} on this machine with '
    'compilation and evaluations, estimated from a timed round.'
  )


def run(form, folder, which=1, number=1):
  """Train and write; return the page, with the other files beside it.

  What is there is written before a KeyboardInterrupt, that of a deadline too,
  ends it. One of several jobs writes its counts alone.
  """
  from fedjax_pfl.compare import protocol, train
  from fedjax_pfl.results.page import board_page
  from fedjax_pfl.results.runs.stored_counts import MARK

  about, entries = protocol.about(form), {}
  path = folder / f'{form.name}_seeds_{"_".join(map(str, form.seeds))}.html'
  if number > 1:
    path = path.with_name(f'{path.stem}{MARK}_{which}_of_{number}.csv')
  try:
    for partition, entry in train.entries(form, folder / RUNS, which, number):
      entries.setdefault(partition, []).append(entry)
  finally:
    board_page.write(entries, about, path)
  return path


def compute_again():
  from fedjax_pfl.core.rules import one_of
  from fedjax_pfl.results.page import board_page
  from fedjax_pfl.results.runs import stored_counts

  files = stored_counts.files_of(AGAIN.value)
  about, entries = stored_counts.read(files)
  for name in BASELINE.value:
    one_of(about.methods, 'a method of it').check('--baseline', name)
  if BASELINE.value:
    about = about._replace(baselines=tuple(BASELINE.value))
  name = stored_counts.about_path(files[0]).with_suffix('.html').name
  board_page.write(entries, about, Path(WORKDIR.value) / name)


def read_form(overrides):
  """Return the form that the flags describe."""
  from configs.leaderboard import OWN_VIEWS, RATE_FIELDS, load_form
  from fedjax_pfl.compare.combinations import parse_seeds
  from fedjax_pfl.compare.form import FACTORS, LAST_ROUND, RATE, make_form
  from fedjax_pfl.compare.protocol import name_of_data

  seeds = parse_seeds(SEEDS.value) if SEEDS.value else ()
  if FORM.value:
    methods = commandline.load_methods(METHODS.value)
    form = load_form(FORM.value, seeds, methods)
    where = {x: overrides[x] for x in overrides if x == 'data_dir'}
    commandline.refuse_beside_form(overrides.keys() - where, OF_CONFIG)
    form = form._replace(base=form.base | where)
    return form.only(PARTITION.value) if PARTITION.value else form
  commandline.refuse_without_form(PARTITION)
  commandline.require('config')
  commandline.require('methods')
  base = commandline.read_settings(CONFIG.value, overrides)
  methods = [
    commandline.read_settings(CONFIG.value, overrides | {'algorithm': name})
    for name in METHODS.value
  ]
  methods = tuple(config['algorithm'] for config in methods)
  fields = {name: base[name] for name in base if name not in ('hp', 'views')}
  label = f'{name_of_data(base)}, {base["partition"]}'
  tied = {method: RATE_FIELDS.get(method, RATE) for method in methods}
  rate_fields = {  # a rate that is given is kept
    method: tuple(name for name in names if name not in overrides)
    for method, names in tied.items()
  }
  candidates = read_candidates(methods, overrides)
  tried = {*itertools.chain(*candidates[methods[0]])}
  rates = {'finetune.learning_rate', 'finetune.factors'}
  if 'learning_rate' in tried and rates.isdisjoint({*tried, *overrides}):
    fields['finetune'] = {**fields['finetune'], 'factors': FACTORS}
  seeds = tuple(seeds or range(3))
  tuning = parse_seeds(TUNING.value) if TUNING.value else seeds[:1]
  return make_form(
    name='compare',
    base=fields | LAST_ROUND,
    partitions={label: {}},
    methods=methods,
    baselines=tuple(BASELINE.value) or methods[:1],
    own={label: {base['algorithm']: {'hp': base['hp']}}},
    candidates=candidates,
    rate_fields=rate_fields,
    own_views=OWN_VIEWS,
    seeds=seeds,
    tuning_seeds=tuple(tuning),
    tune_by=TUNE_BY.value or base['tune_by'],
  )


def read_candidates(methods, overrides):
  """Return the settings of each method that the flags ask for."""
  from fedjax_pfl.compare.combinations import make_candidates, parse

  number = RANDOM.value
  varied = parse(GRID.value, RANGE.value, number, overrides, methods)
  return make_candidates(methods, varied, number or 0)


def read_shard():
  """Return (which, of how many)."""
  from fedjax_pfl.core.errors import bad_input

  which, _, number = SHARD.value.partition('/')
  are_numbers = which.isdecimal() and number.isdecimal()
  if not are_numbers or not 1 <= int(which) <= int(number):
    expected = 'WHICH/OF, from 1/OF to OF/OF, as 2/8'
    raise bad_input('--shard', got=SHARD.value, expected=expected)
  return int(which), int(number)


if __name__ == '__main__':
  commandline.run(main, packages=['jinja2', 'matplotlib'])
