"""The PyTorch loop as single-threaded processes, one a core.

The clients are dealt out. The processes are started before anything is timed
and wait at a pipe. Each leaves its sums in memory that is shared with the first
process, which adds them up: what a round needs from them, once.
"""

import multiprocessing
from collections.abc import Callable

import torch

from experiments.benchmarks.torch_loop import WORKS, Side, Totals, parameters

PATIENCE = 300  # seconds for a first call, which compiles


def deal(clients: int, processes: int) -> list[int]:
  """Return how many clients each process has.

  >>> deal(5, 2)
  [3, 2]
  """
  return [len(range(first, clients, processes)) for first in range(processes)]


def start(
  side: Side, work: str, processes: int
) -> tuple[Callable[[], Totals], Callable[[], None]]:
  """Return (run, close) of so many processes.

  A run returns the sums over the clients of all processes.
  """
  context = multiprocessing.get_context('spawn')
  parts, pipes, started = [], [], []
  for clients in deal(side.case.clients, processes):
    own, theirs = context.Pipe()
    totals = _room(side, work)
    share = side._replace(case=side.case._replace(clients=clients))
    process = context.Process(
      target=_serve,
      args=(share, work, totals, theirs),
      daemon=True,  # ends with this one
    )
    process.start()
    theirs.close()  # so that the death of the process is the end of the pipe
    parts.append(totals)
    pipes.append(own)
    started.append(process)

  def run():
    for pipe in pipes:
      pipe.send('run')
    for pipe in pipes:
      if error := _answer(pipe):
        raise RuntimeError(error)
    return [sum(leaves) for leaves in zip(*parts, strict=True)]

  def close():
    for pipe in pipes:
      pipe.close()
    for process in started:
      process.join()

  return run, close


def _answer(pipe) -> str:
  """Return the error of a process, '' for none."""
  try:
    return pipe.recv() if pipe.poll(PATIENCE) else 'a process does not answer'
  except EOFError:
    return 'a process has ended'


def _room(side: Side, work: str) -> Totals:
  """Return shared memory for what the work of one process returns."""
  if work == 'evaluation':
    return [torch.zeros((), dtype=torch.int64).share_memory_()]
  leaves = parameters(side.network())
  return [torch.zeros_like(leaf).share_memory_() for leaf in leaves]


def _serve(side, work, totals, pipe):
  """Answer every message with one run, until the pipe is closed."""
  torch.set_num_threads(1)
  run = WORKS[work](side)
  while True:
    try:
      pipe.recv()
    except EOFError:
      return
    try:
      for total, leaf in zip(totals, run(), strict=True):
        total.copy_(leaf)
      pipe.send('')
    except Exception as error:  # is raised in the first process
      pipe.send(f'{type(error).__name__}: {error}')
