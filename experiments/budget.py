"""Print what a config sends, and how many rounds of FedAvg send as much:

  python experiments/budget.py --config=configs/fedconcat_digits.py

  R = [sum over stages of f T (up + down) + once] / (f 2 P)

Bytes to and from one client, with f of the clients in a round of T, and P the
bytes of the config's model. Counted in the messages of the method; nothing is
trained.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the configs import theirs

from absl import flags, logging

from experiments import commandline

CONFIG = flags.DEFINE_string(
  'config', None, 'a config file, e.g. configs/fedconcat_digits.py[:quick]'
)


def main(overrides):
  logging.set_verbosity(logging.WARNING)
  settings = commandline.read_settings(CONFIG.value, overrides)
  # Imported here: a mistyped flag should not wait for jax.
  from fedjax_pfl.core import progress
  from fedjax_pfl.settings.validate import check_settings

  check_settings(settings)
  progress.log(table(*budget(settings)))


def budget(settings):
  """Return {stage: (rounds, traffic, fraction)} and FedAvg's rounds."""
  import jax

  from fedjax_pfl.core import trees
  from fedjax_pfl.core.types import ClientData
  from fedjax_pfl.data import peek
  from fedjax_pfl.federated import communication
  from fedjax_pfl.federated.cohort import cohort_size
  from fedjax_pfl.federated.rounds import stage_shapes
  from fedjax_pfl.training.experiment import build_stages, build_task

  def shape(*sizes, dtype='int32'):
    return jax.ShapeDtypeStruct(sizes, dtype)

  image, num_classes = peek(settings['dataset'], settings['data_dir'])
  task = build_task(settings, image, num_classes)
  clients = settings['num_clients']
  data = ClientData(
    shape(1, *image, dtype='uint8'),
    shape(1),
    shape(clients, settings['batch_size']),
    shape(clients),
  )
  fraction = cohort_size(clients, settings['client_fraction']) / clients
  stages, total = {}, 0
  for stage, *states in stage_shapes(build_stages(settings, task), data):
    part = 1.0 if stage.full_participation else fraction
    sizes = communication.count(stage, *states, data)
    stages[stage.name] = stage.rounds, sizes, part
    total += communication.total([(stage.rounds, sizes)], part)
  model = jax.eval_shape(task.init, jax.eval_shape(jax.random.key, 0))
  return stages, total / (fraction * 2 * trees.num_bytes(model))


def table(stages, rounds) -> str:
  """Return the stages as a table of plain text, and FedAvg's rounds."""
  from fedjax_pfl.federated import communication
  from fedjax_pfl.report.text_table import align

  head = ('stage', 'rounds', 'clients', 'up, kB', 'down, kB', 'once, kB', 'MB')
  lines = [head]
  for name, (number, sizes, part) in stages.items():
    total = communication.total([(number, sizes)], part)
    kilobytes = (sizes.up, sizes.down, sizes.initial)
    lines.append(
      (
        name,
        f'{number:,}',
        f'{100 * part:.4g} %',
        *(f'{size / 1000:,.1f}' for size in kilobytes),
        f'{total / 1e6:,.1f}',
      )
    )
  return (
    f'{align(lines)}\n\nTo and from a client on average, as much as '
    f'{rounds:,.1f} rounds of FedAvg with this model.'
  )


if __name__ == '__main__':
  commandline.run(main, required=['config'])
