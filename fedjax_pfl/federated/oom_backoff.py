"""As many clients side by side as memory holds, at last found out by trying.

What a chunk will take is reckoned before (chunks.py), and memory may be more
scattered than that. Where the allocator fails, half as many clients run side
by side: arguments are not given away, so the round is begun once more.
"""

from collections.abc import Callable

import jax

from fedjax_pfl.core import trees
from fedjax_pfl.core.errors import BadInput, bad_input


def until_it_fits(
  make_fn: Callable[[int], Callable],
  chunk: int | str,
  choose_fn: Callable[..., int],
  log: Callable[[str], None] = lambda text: None,
) -> Callable:
  """Return make_fn(chunk) as a function, with a chunk that fits memory.

  'auto' begins with choose_fn(*args), asked once, and halves it where memory
  does not hold it. A number is not changed: it is refused with a sentence.
  """
  chosen = []  # [chunk, function, whether it was seen to fit]

  def call(*args):
    if not chosen:
      first = choose_fn(*args) if chunk == 'auto' else chunk
      chosen[:] = first, make_fn(first), False
    size, function, fits = chosen
    if fits or trees.is_traced(args):
      return function(*args)
    try:
      # The allocator of an accelerator fails when nobody is looking any more.
      result = jax.block_until_ready(function(*args))
    except jax.errors.JaxRuntimeError as error:
      if not is_out_of_memory(error):
        raise
      if chunk != 'auto' or size == 1:
        raise _too_large(size, error) from error
      chosen[:] = size // 2, make_fn(size // 2), False
      log(
        f'{size} clients side by side are more than memory holds: going on '
        f'with {size // 2}. The numbers are the same.'
      )
      return call(*args)
    chosen[2] = True
    return result

  return call


def is_out_of_memory(error: Exception) -> bool:
  """Return whether an allocator gave up, on a device or on the host."""
  return 'RESOURCE_EXHAUSTED' in str(error)


def _too_large(size: int, error: Exception) -> BadInput:
  choices = ['a smaller batch_size', 'a smaller model']
  if size > 1:
    choices = [
      'clients_per_chunk=auto',
      f'clients_per_chunk={size // 2}',
      *choices,
    ]
  return bad_input(
    'clients_per_chunk',
    got=size,
    expected='as many clients side by side as memory holds',
    choices=[*choices, 'clients_placement=host'],
    cause=str(error).splitlines()[0][:120],
  )
