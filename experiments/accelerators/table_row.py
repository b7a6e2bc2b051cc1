"""Compile a row of the tables, or find what was stored of it."""

from experiments.accelerators import report, store, targets
from experiments.accelerators.compilation import compile_program, lower
from experiments.accelerators.programs import make_programs
from experiments.accelerators.report import Where
from experiments.accelerators.rows import Row, config_of
from experiments.accelerators.store import Record
from fedjax_pfl.core.target import compiling_for


def compile_row(
  where: Where, row: Row, known: dict[str, Record]
) -> tuple[list[Record], int]:
  """Return the records of a row's programs, and how many were compiled.

  `known` are all records by key; those of new programs are added.
  """
  plan = report.plan_for(where, config_of(row, where.platform))
  devices, precision = targets.devices_of(*where), plan.settings.model.precision
  records, compiled = [], 0
  with compiling_for(where.kind, where.device.memory):
    for program in make_programs(plan, devices):
      if program.kind not in row.kinds:
        continue
      lowered = lower(program, where.device, where.kind)
      key = store.key_of(program, lowered.as_text(), where)
      if key not in known:
        found = compile_program(program, lowered, where.device, precision)
        known[key] = store.record_of(found, key, where.platform)
        compiled += 1
      # Another stage, perhaps another method, may have had this program.
      own = {'stage': program.stage, 'calls': program.calls}
      records.append({**known[key], **own})
  return records, compiled
