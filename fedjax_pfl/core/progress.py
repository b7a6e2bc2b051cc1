"""All that a person sees while a run goes on.

On a terminal a progress bar; in a batch job (no terminal, TERM=dumb, or CI
set) plain lines, at most one a second, that read well in a log file.

>>> from fedjax_pfl.core import progress as console
>>> with console.progress('training', 2) as bar:
...   bar.update(2, loss=1.234, images_per_second=812.)
round 2/2  loss 1.234  812 images/s
"""

import contextlib
import functools
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TextIO

import jax.monitoring

PERIOD = 1.0  # seconds between two plain lines
PATIENCE = 5.0  # seconds that short work may take before it has lines
COMPILING = '/jax/core/compile/'  # begins the names of what jax times there
_spans: list[tuple[float, float]] = []  # (began, lasted), none in another


def compiled_seconds() -> float:
  """Return how long this process has traced and compiled so far."""
  return sum(lasted for _, lasted in _spans)


def add_compiled(name: str, lasted: float, **_) -> None:
  """Count a trace, lowering or compilation that has just ended.

  A trace contains those of the functions that it calls, which end before it.
  """
  if not name.startswith(COMPILING):
    return
  began = time.perf_counter() - lasted
  while _spans and _spans[-1][0] >= began:
    _spans.pop()
  _spans.append((began, lasted))


jax.monitoring.register_event_duration_secs_listener(add_compiled)


class Screen:
  """One place to write to; the module's functions use that of stdout."""

  def __init__(
    self,
    stream: TextIO | None = None,
    environ: Mapping[str, str] = os.environ,
    clock: Callable[[], float] = time.monotonic,
    compiled: Callable[[], float] = compiled_seconds,
  ):
    self._stream = stream  # None: what sys.stdout is at the time of writing
    self._environ = environ
    self.clock = clock
    self.compiled = compiled  # seconds so far, which no rate counts
    self._live = None  # rich's display, while a bar is open
    self._open: list[Bar] = []  # nested
    self._is_silent = False

  @property
  def stream(self) -> TextIO:
    return sys.stdout if self._stream is None else self._stream

  def is_terminal(self) -> bool:
    """Return whether a bar may be drawn and drawn over."""
    dumb = self._environ.get('TERM', '') in ('dumb', 'unknown')
    ci = self._environ.get('CI', '').lower() not in ('', '0', 'false')
    return self.stream.isatty() and not (dumb or ci or self._is_silent)

  def silence(self) -> None:
    """Print nothing from now on: another process of the run prints."""
    self._is_silent = True

  def log(self, text: str, style: str | None = None) -> None:
    """Print a line; while a bar is drawn, above it."""
    if self._is_silent:
      return
    if self._live is not None:
      self._live.console.print(text, style=style, markup=False, highlight=False)
      return
    try:
      print(text, file=self.stream, flush=True)  # a log may be read meanwhile
    except UnicodeEncodeError:  # LANG=C of a batch job: replace, do not raise
      self.log(text.replace('±', '+-').encode('ascii', 'replace').decode())

  def warn(self, text: str) -> None:
    """Print a line as a warning; on a terminal in yellow."""
    text = f'Warning: {text}'
    if self._live is None and self.is_terminal():
      text = f'\033[33m{text}\033[0m'
    self.log(text, style='yellow')

  @contextlib.contextmanager
  def progress(
    self,
    title: str,
    total: int,
    *,
    unit: str = 'round',
    start: int = 0,
    is_short: bool = False,
    waits: bool = False,
  ) -> Iterator['Bar']:
    """Show progress from `start` (of a resumed run) to `total`.

    Bars may be nested: an evaluation within the training. Inner work, and such
    as mostly `is_short`, has plain lines only if it takes long. If the first
    update `waits` for other processes, no rate counts the time before it.
    """
    is_inner, show = bool(self._open), None
    patience = PATIENCE if is_inner or is_short else 0.0
    with contextlib.ExitStack() as stack:
      if self.is_terminal():
        if not is_inner:
          self._live = stack.enter_context(_make_live(self.stream))
          stack.callback(setattr, self, '_live', None)
        task = self._live.add_task(title, total=total, completed=start, text='')
        show = functools.partial(self._live.update, task)
        if is_inner:  # it gives its line back
          stack.callback(self._live.remove_task, task)
      begin = None if waits else start
      self._open.append(Bar(self, unit, begin, total, patience, show))
      stack.callback(self._open.pop)
      yield self._open[-1]

  def say(self, text: str) -> None:
    """Show in the innermost bar what goes on before its next update."""
    if self._open:
      self._open[-1].say(text)


class Bar:
  """A line of rich's display; or plain lines, none for work that ends soon."""

  def __init__(self, screen, unit, start, total, patience, show):
    self._screen, self._unit, self._total = screen, unit, total
    self._show = show  # None for plain lines
    now = screen.clock()
    self._marks = deque(maxlen=9)  # seconds of work, and what was done
    if start is not None:
      self._marks.append((now - screen.compiled(), start))
    self._next, self._is_silent = now + patience, patience > 0

  def say(self, text: str) -> None:
    """Show what goes on before the next update."""
    if self._show is not None:
      self._show(text=text)
    elif not self._is_silent:
      self._screen.log(text)

  def update(self, done: int, **numbers: float) -> None:
    """Show that `done` of the total are done, and the latest numbers."""
    now = self._screen.clock()
    worked = now - self._screen.compiled()
    self._marks.append((worked, done))
    then, before = self._marks[0]
    is_last = done >= self._total
    parts = format_numbers(numbers)
    if before < done and not is_last:
      left = (worked - then) / (done - before) * (self._total - done)
      parts.append(f'{format_seconds(left)} left')
    if self._show is not None:
      self._show(completed=done, text='  '.join(parts))
    elif now >= self._next or (is_last and not self._is_silent):
      self._is_silent, self._next = False, now + PERIOD
      first = f'{self._unit} {done}/{self._total}'
      self._screen.log('  '.join([first, *parts]))


def format_numbers(numbers: Mapping[str, float]) -> list[str]:
  """Return each number with its unit, rounded for reading; NaN as '-'.

  >>> format_numbers({'loss': 1.2345, 'images_per_second': 812.3})
  ['loss 1.234', '812 images/s']
  """
  parts = []
  for name, number in numbers.items():
    label = name.replace('_', ' ')
    if math.isnan(number):
      parts.append(f'{label} -')
    elif name.endswith('_per_second'):
      unit = label.removesuffix(' per second')
      digits = 0 if number >= 10 else 1
      parts.append(f'{number:,.{digits}f} {unit}/s')
    elif 'accuracy' in name:
      parts.append(f'{label} {number:.1f} %')
    elif name == 'loss':
      parts.append(f'{label} {number:.3f}')
    else:
      parts.append(f'{label} {number:.4g}')
  return parts


def format_seconds(seconds: float) -> str:
  """Return '12 s', '3 min 05 s' or '2 h 07 min'."""
  seconds = round(seconds)
  if seconds < 60:
    return f'{seconds} s'
  if seconds < 3600:
    return f'{seconds // 60} min {seconds % 60:02d} s'
  return f'{seconds // 3600} h {seconds % 3600 // 60:02d} min'


def _make_live(stream: TextIO):
  from rich import console, progress  # 0.1 s, and not needed in a batch job

  return progress.Progress(
    progress.TextColumn('{task.description}', markup=False),
    progress.BarColumn(bar_width=24),
    progress.MofNCompleteColumn(),
    progress.TextColumn('{task.fields[text]}', markup=False),
    console=console.Console(file=stream),
    refresh_per_second=4,  # rounds on an accelerator should not wait for it
  )


_stdout = Screen()
log = _stdout.log
warn = _stdout.warn
say = _stdout.say
silence = _stdout.silence
progress = _stdout.progress
