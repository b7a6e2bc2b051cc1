"""The PyTorch loop as single-threaded processes, one a core.

The clients are dealt out. The processes are started before anything is timed
and wait at a pipe. Each leaves its sums in memory that is shared with the first
process, which adds them up: what a round needs from them, once.
"""

import multiprocessing
from collections.abc import Callable, Sequence

import torch

from experiments.benchmarks.torch_loop import WORKS, Clients, Totals

PATIENCE = 300  # seconds for a first call, which compiles


def start(
  case: Clients, work: str, shares: Sequence[int]
) -> tuple[Callable[[], Totals], Callable[[], None]]:
  """Return (run, close); shares: how many clients each process has.

  A run returns the sums over the clients of all processes.
  """
  context = multiprocessing.get_context('spawn')
  parts, pipes, processes = [], [], []
  for clients in shares:
    own, theirs = context.Pipe()
    totals = _room(case, work)
    process = context.Process(
      target=_serve,
      args=(case._replace(clients=clients), work, totals, theirs),
      daemon=True,  # ends with this one
    )
    process.start()
    theirs.close()  # so that the death of the process is the end of the pipe
    parts.append(totals)
    pipes.append(own)
    processes.append(process)

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
    for process in processes:
      process.join()

  return run, close


def _answer(pipe) -> str:
  """Return the error of a process, '' for none."""
  try:
    return pipe.recv() if pipe.poll(PATIENCE) else 'a process does not answer'
  except EOFError:
    return 'a process has ended'


def _room(case: Clients, work: str) -> Totals:
  """Return shared memory for what the work of one process returns."""
  if work == 'evaluation':
    return [torch.zeros((), dtype=torch.int64).share_memory_()]
  leaves = case.network().parameters()
  return [torch.zeros_like(leaf.detach()).share_memory_() for leaf in leaves]


def _serve(case, work, totals, pipe):
  """Answer every message with one run, until the pipe is closed."""
  torch.set_num_threads(1)
  run = WORKS[work](case)
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
