"""Halve the chunk of a round that runs out of memory, and run it again.

`chunking.py` computes how many clients fit, but memory may be fragmented. The
arguments of a round are not donated, so it can be run once more.
"""

from collections.abc import Callable

import jax

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput, bad_input


def with_oom_backoff(
  make_fn: Callable[[int], Callable],
  clients_per_chunk: int | str,
  choose_fn: Callable[..., int],
  log: Callable[[str], None] = lambda text: None,
) -> Callable:
  """Return make_fn(chunk) as a function, with a chunk that fits into memory.

  The chunk of 'auto' is choose_fn(*args) of the first call, halved as long as
  memory does not hold it. A number is not changed: BadInput is raised.
  """
  chosen = []  # [chunk, function, whether a call has succeeded]

  def call(*args):
    if not chosen:
      is_auto = clients_per_chunk == 'auto'
      first = choose_fn(*args) if is_auto else clients_per_chunk
      chosen[:] = first, make_fn(first), False
    chunk, function, fits = chosen
    if fits or trees.is_traced(args):
      return function(*args)
    try:
      # Execution is asynchronous: without waiting, an accelerator's allocator
      # fails after this block.
      result = jax.block_until_ready(function(*args))
    except jax.errors.JaxRuntimeError as error:
      if not is_out_of_memory(error):
        raise
      if clients_per_chunk != 'auto' or chunk == 1:
        raise _too_large(chunk, error) from error
      chosen[:] = chunk // 2, make_fn(chunk // 2), False
      log(
        f'{chunk} clients at a time run out of memory: going on with '
        f'{chunk // 2}. The results are the same.'
      )
      return call(*args)
    chosen[2] = True
    return result

  return call


def is_out_of_memory(error: Exception) -> bool:
  """Return whether an allocator failed, of a device or of the host."""
  return 'RESOURCE_EXHAUSTED' in str(error)


def _too_large(chunk: int, error: Exception) -> BadInput:
  choices = ['a smaller batch_size', 'a smaller model']
  if chunk > 1:
    choices = [
      'clients_per_chunk=auto',
      f'clients_per_chunk={chunk // 2}',
      *choices,
    ]
  return bad_input(
    'clients_per_chunk',
    got=chunk,
    expected='as many clients at a time as fit into memory',
    choices=[*choices, 'clients_placement=host'],
    cause=str(error).splitlines()[0][:120],
  )
