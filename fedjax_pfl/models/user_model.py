"""Make a Task of a model that the user's own file defines.

net.py:MyNet   a module of flax.linen; or what makes a module: a class, or a
               function, called with those of the words below that it takes

num_classes    Y
input_shape    the shape of an example: (H, W, ch), or any other
rngs           nnx.Rngs: the module is one of flax.nnx
"""

import inspect
from collections.abc import Callable
from typing import Any

import flax.linen as nn

from fedjax_pfl.core import user_code
from fedjax_pfl.core.errors import bad_input
from fedjax_pfl.core.types import Task
from fedjax_pfl.models.module_task import task_from_module

WORDS = ('num_classes', 'input_shape', 'rngs')
NO_WORDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def make_user_task(
  code: Any, *, image_shape: tuple[int, ...], num_classes: int, **how: Any
) -> Task:
  """Return the Task of the code; `how` is for `task_from_module`."""
  sizes = {'image_shape': image_shape, 'num_classes': num_classes}
  return task_from_module(_module_of(code, **sizes), **sizes, **how)


def _module_of(
  code: Any, image_shape: tuple[int, ...], num_classes: int
) -> nn.Module | Callable:
  """Return the module; of flax.nnx a function rngs -> module."""
  if isinstance(code, nn.Module):
    return code
  if not callable(code):
    raise bad_input(
      'model',
      got=f'{type(code).__name__}',
      expected='a flax module, its class, or a function that makes one',
      cause='the name of something else in that file; or a module of flax.nnx '
      'with its parameters in it, whose class is meant',
    )
  takes = _words_of(code)
  known = {'num_classes': num_classes, 'input_shape': tuple(image_shape)}
  given = {word: value for word, value in known.items() if word in takes}

  def make(**more: Any) -> Any:
    return user_code.call(
      'model',
      lambda: code(**given, **more),
      of=code,
      cause='a mistake there, or sizes that do not fit its inputs',
    )

  if 'rngs' in takes:
    return lambda rngs: make(rngs=rngs)
  module = make()
  if isinstance(module, nn.Module):
    return module
  raise bad_input(
    'model',
    got=f'{user_code.name_of(code)}, which makes {type(module).__name__}',
    expected='a module of flax.linen, or one of flax.nnx by the argument rngs',
    cause='a function without a return, a module of another library, or '
    'nnx.Rngs inside: a run draws the parameters of every seed itself',
  )


def _words_of(code: Callable) -> tuple[str, ...]:
  """Return the words it takes; refuse code that needs others."""
  # A class of flax.nnx is called by its metaclass.
  begin = code.__init__ if inspect.isclass(code) else code
  parameters = dict(inspect.signature(begin).parameters)
  parameters.pop('self', None)
  others = [
    name
    for name, one in parameters.items()
    if one.default is one.empty
    and one.kind not in NO_WORDS
    and name not in WORDS
  ]
  if not others:
    return tuple(word for word in WORDS if word in parameters)
  raise bad_input(
    'model',
    got=f'{user_code.name_of(code)}, which needs {", ".join(others)}',
    expected='no other argument without a default',
    choices=WORDS,
    cause='sizes that have no default: give them one, or write a function '
    'that makes the module',
  )
