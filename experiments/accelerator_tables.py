"""Compile every model and every method; write docs/dev/accelerators.md:

  python experiments/accelerator_tables.py --platform=cuda
  python experiments/accelerator_tables.py --write

Nothing is run on a device: these are the compiler's numbers. Every row is
stored in results/accelerators as soon as it is compiled, so that the command
goes on where it was interrupted. Without a platform it prints the tables of
what is stored. `make accelerators` does all of this.
"""

import sys
import time

import commandline
from absl import flags

from experiments.accelerators import environment

PLATFORM = flags.DEFINE_string('platform', '', 'tpu or cuda; none: stored rows')
WRITE = flags.DEFINE_bool('write', False, 'write docs/dev/accelerators.md')


def main():
  environment.prepare(PLATFORM.value)  # before jax is imported
  from experiments.accelerators import tables

  if PLATFORM.value:
    compile_rows(tables.all_rows())
  if PLATFORM.value and not WRITE.value:
    return
  text = tables.as_markdown(
    {name: tables.read(name) for name in ('cuda', 'tpu')}
  )
  if WRITE.value:
    tables.PAGE.write_text(text, encoding='utf-8')
  else:
    print(text)


def compile_rows(chosen):
  """Compile these rows and store them, one after the other."""
  from experiments.accelerators import tables, targets

  where = targets.make_where(PLATFORM.value, '', 1)
  stored = tables.read(where.platform).values()
  known = {one['key']: one for own in stored for one in own}
  for number, row in enumerate(chosen, 1):
    began = time.monotonic()
    records, compiled = tables.compile_row(
      where._replace(number=row.devices), row, known
    )
    tables.write(where.platform, row, records)
    seconds = time.monotonic() - began
    print(
      f'{PLATFORM.value} {number}/{len(chosen)} {row.name}: {len(records)} '
      f'programs, {compiled} compiled, {seconds:.0f} s',
      file=sys.stderr,
      flush=True,
    )


if __name__ == '__main__':
  commandline.run(main)
