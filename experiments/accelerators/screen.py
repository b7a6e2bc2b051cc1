"""The printed tables of compiled programs."""

import textwrap
from collections.abc import Iterator, Sequence

from experiments.accelerators import roofline
from experiments.accelerators.compilation import Compiled
from experiments.benchmarks.screen import WIDTH, columns, number

MEMORY_HEADS = (
  *('clients\nside by side', 'compiled\nin s', 'arguments\nMiB'),
  *('results\nMiB', 'temporary\nMiB', 'of the\ndevice', '\nfits'),
)
WORK_HEADS = (
  *('kernels\na step', 'GFLOP\na step', 'MB\na step', 'MB an\nimage'),
  *('us an\nimage', '\nlimit', 'us by\ncycles', 'ms\na call', '\ncalls'),
  'run\ns',
)
NOTE = (
  "The compiler's numbers, not measurements. Time: max(bytes / bandwidth, "
  'FLOPs / peak) + kernels x launch.'
)


def tables(rows: Sequence[tuple[str, Compiled]]) -> Iterator[str]:
  """Yield the lines of both tables; each row has a label in front."""
  yield from _table('memory', MEMORY_HEADS, rows, _memory)
  yield ''
  yield from _table('work', WORK_HEADS, rows, _work)
  for label, compiled in rows:
    yield from _remarks(label, compiled)
  yield ''
  yield from textwrap.wrap(NOTE, WIDTH)


def run_line(rows: Sequence[Compiled]) -> str:
  """Return the forecast of a run: all rounds, and the last evaluation."""
  if any(row.call is None for row in rows):
    return ''
  calls = [row.program.calls for row in rows]
  times = [row.call_seconds for row in rows]
  rounds = sum(r.program.calls for r in rows if r.program.kind == 'round')
  words = [f'{rounds:,.0f} rounds'] * (rounds > 0)
  if any(row.program.kind == 'evaluation' for row in rows):
    words.append('the last evaluation')
  if not words:
    return ''
  line = f'{" and ".join(words)}: {_total(calls, times)}'
  own = [roofline.compiler_seconds(row.call, row.device) for row in rows]
  if all(own):
    line += f'; by the cycles of the compiler {_total(calls, own)}'
  return line


def _total(calls: Sequence[float], seconds: Sequence[float]) -> str:
  pairs = zip(calls, seconds, strict=True)
  return duration(sum(number * each for number, each in pairs))


def duration(seconds: float) -> str:
  """Return a time in the unit that suits it.

  >>> duration(0.5), duration(187), duration(9000)
  ('0.5 s', '3 min 7 s', '2 h 30 min')
  """
  whole = round(seconds)  # first, so that no unit has 60 of the next
  if whole < 60:
    return f'{number(seconds)} s'
  if whole < 3600:
    return f'{whole // 60} min {whole % 60} s'
  minutes = round(seconds / 60)
  return f'{minutes // 60} h {minutes % 60} min'


def _table(title, heads, rows, cells) -> Iterator[str]:
  lines = [*zip(*(h.split('\n') for h in (f'\n{title}', *heads)), strict=True)]
  for label, compiled in rows:
    lines.append((label, *cells(compiled)))
  yield from columns(lines, heads=2)


def _memory(row: Compiled) -> tuple[str, ...]:
  program, memory = row.program, row.memory
  chunk = str(program.chunk) if program.chunk else ''
  if memory is None:
    return chunk, number(row.seconds), '', '', '', '', 'no'
  share = memory.total / row.device.memory
  return (
    chunk,
    number(row.seconds),
    *(_mib(part) for part in memory[:3]),
    f'{100 * share:.0f} %',
    'no' if row.error else 'yes',
  )


def _work(row: Compiled) -> tuple[str, ...]:
  if row.call is None:
    return ('',) * len(WORK_HEADS)
  step, images = row.step, row.program.images
  own = step and roofline.compiler_seconds(step, row.device)
  each = ('',) * 7
  if step:
    each = (
      f'{step.kernels:,.0f}',
      number(step.flops / 1e9),
      number(step.bytes / 1e6),
      number(step.bytes / 1e6 / images),
      number(1e6 * row.step_seconds / images),
      roofline.limit(step, row.device, row.precision),
      number(1e6 * own / images) if own else '',
    )
  calls = row.program.calls
  return (
    *each,
    number(1e3 * row.call_seconds),
    f'{calls:,.0f}',
    number(calls * row.call_seconds),
  )


def _remarks(label: str, row: Compiled) -> Iterator[str]:
  found = [
    f'{times:,.0f} {name} of {moved / 1e6:,.2f} MB'
    for name, (times, moved) in row.collectives.items()
  ]
  if found:
    yield from _wrapped(f'{label}: {", ".join(found)}')
  if row.error:
    yield from _wrapped(f'{label}: {row.error}')


def _wrapped(text: str) -> list[str]:
  return textwrap.wrap(text, WIDTH, subsequent_indent='  ')


def _mib(nbytes: int) -> str:
  return f'{nbytes / 2**20:,.1f}'
