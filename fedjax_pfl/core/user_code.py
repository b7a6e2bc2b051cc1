"""Code of the user's own, named in a config as 'net.py:MyNet'.

To load it is to run its file. So `load_code` is called for a command line, and
for a config in the user's own program, and nowhere else: what a run directory
stores is a plain string, 'net.py:MyNet#4f0c8e21ab37', which nothing loads. The
12 digits are of the file's content; with other content it is another training.
"""

import hashlib
import inspect
import itertools
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import BadInput, bad_input, expand_home

NAME = re.compile(
  r'(?P<path>[^#]*\.py):(?P<name>[A-Za-z_]\w*)(#(?P<digest>[0-9a-f]{12}))?'
)
FORM = 'FILE.py:NAME'
# Fields of a config that may name code; `models` and `metrics` are tuples.
FIELDS = ('algorithm', 'around', 'model', 'models', 'loss', 'metrics')
FIELDS += ('model_of_client', 'partition', 'sampling', 'tracker')
FIELDS += ('aggregation', 'attack')


class UserCode(str):
  """The name of loaded code; only a loaded one has a `value`."""

  def __new__(cls, text: str, value: Any) -> 'UserCode':
    self = super().__new__(cls, text)
    self.value = value
    return self


def is_code(name: Any) -> bool:
  """Return whether a value has the form of a name of code."""
  return isinstance(name, str) and NAME.fullmatch(name) is not None


def load_code(config: Mapping[str, Any]) -> dict[str, Any]:
  """Return the config with the code that it names loaded: its files are run.

  Only for configs of your own: those of a run directory may be anybody's.

  Args:
    config: fields of a config by name; those of `FIELDS`, such as `model`
      and `partition`, may be 'FILE.py:NAME' (docs/howto/own_*.md).

  Returns:
    The config for `build_experiment`, where these names have a digest of their
    file, and hold what they name.

  >>> with open('net.py', 'w') as stream:
  ...   _ = stream.write('def my_loss(logits, labels): return logits[:, 0]')
  >>> config = pfl.load_code({'loss': 'net.py:my_loss', 'seed': 1})
  >>> config['loss'][:15], callable(config['loss'].value)
  ('net.py:my_loss#', True)
  """
  loaded = dict(config)
  for field in FIELDS:
    value = loaded.get(field)
    if isinstance(value, list | tuple):
      loaded[field] = tuple(_load(field, name) for name in value)
    elif field in loaded:
      loaded[field] = _load(field, value)
  return loaded


def value_of(field: str, name: str) -> Any:
  """Return the code of this name; refuse one that was not loaded."""
  check_loaded({field: name}, every=True)
  return name.value


def check_loaded(config: Mapping[str, Any], every: bool = False) -> None:
  """Refuse a config with names of code that was not loaded, all at once.

  Names that are no code stay, but for `every`.
  """
  absent = {}
  for field in FIELDS:
    names = config.get(field, ())
    names = names if isinstance(names, list | tuple) else [names]
    strange = [name for name in names if not isinstance(name, UserCode)]
    if any(every or is_code(name) for name in strange):
      absent[field] = names
  if not absent:
    return
  typed = lambda names: ','.join(map(without_digest, names))
  flags = [f'--config.{field}={typed(code)}' for field, code in absent.items()]
  raise bad_input(
    ', '.join(absent),
    got=', '.join(itertools.chain(*absent.values())),
    expected='code that your own command line or program has named: nothing '
    'that a run directory or another file names is run',
    choices=[
      f'{" ".join(flags)} on a command line',
      'build_experiment(load_code(config)) in a program',
    ],
  )


def without_digest(name: str) -> str:
  """Return 'net.py:MyNet' for 'net.py:MyNet#4f0c8e21ab37'."""
  return name.partition('#')[0] if is_code(name) else name


def digest_of(name: str) -> str:
  """Return the digest in a name of code; '' without one."""
  return name.partition('#')[2] if is_code(name) else ''


def call(field: str, run: Callable[[], Any], *, of: Any, cause: str) -> Any:
  """Return run(), which calls code `of` the user; its error in a sentence."""
  try:
    return run()
  except (BadInput, KeyboardInterrupt):
    raise
  except BaseException as error:  # somebody's program: anything
    module = sys.modules.get(getattr(of, '__module__', name_of(of)))
    line = _line_of(error, getattr(module, '__file__', None))
    who = pathlib.Path(of.__file__).name if of is module else name_of(of)
    # JAX appends a page of advice to the first line of its errors.
    text = str(error).strip().partition('\n')[0]
    raise bad_input(
      field,
      got=f'{line}{type(error).__name__}: {text}',
      expected=f'{who} to run without an error',
      cause=cause,
    ) from error


def name_of(code: Any) -> str:
  return getattr(code, '__name__', type(code).__name__)


def describe(result: Any) -> str:
  """Return 'float32[3, 4]' of an array, or of its shape; else the type."""
  if hasattr(result, 'dtype') and hasattr(result, 'shape'):
    return f'{result.dtype}{list(result.shape)}'
  return type(result).__name__


def _load(field: str, name: Any) -> Any:
  """Return the code of a name; another value as it is."""
  if isinstance(name, str) and name.endswith('.py'):
    raise bad_input(
      field,
      got=name,
      expected=f'{FORM}, with a name',
      choices=[f'{name}:NAME'],
    )
  if isinstance(name, UserCode) or not is_code(name):
    return name
  match = NAME.fullmatch(name)
  path, attribute = pathlib.Path(match['path']), match['name']
  file = expand_home(field, path)
  if '.py:' in match['path'] and ',' in match['path']:
    raise bad_input(
      field,
      got=name,
      expected=f'one {FORM}',
      cause='a list: of two wrappers write one function that calls both, '
      'def both(stage): return outer(inner(stage))',
    )
  try:
    content = atomic_files.read_bytes(file)
  except OSError as error:
    raise bad_input(
      field,
      got=name,
      expected=f'{FORM} with a file that can be read '
      f'({error.strerror.lower()})',
      choices=sorted(map(str, file.parent.glob('*.py'))),
      cause='a mistyped path, or another directory than the present one, '
      f'{pathlib.Path.cwd()}',
    ) from error
  digest = hashlib.sha256(content).hexdigest()[:12]
  if match['digest'] not in (None, digest):
    raise bad_input(
      field,
      got=f'{path} with the digest {digest}',
      expected=f'the content that {name} names',
      choices=[f'{path}:{attribute}', 'the file as it was'],
    )
  module = _run(field, file.resolve(), content, digest)
  full_name = f'{match["path"]}:{attribute}#{digest}'
  if hasattr(module, attribute):
    return UserCode(full_name, getattr(module, attribute))
  if field == 'algorithm' and hasattr(module, 'build'):
    # A file like those of algorithms/: the name is its label.
    return UserCode(full_name, module)
  choices = [
    defined
    for defined, value in vars(module).items()
    if getattr(value, '__module__', module.__name__) == module.__name__
    and not (defined.startswith('_') or inspect.ismodule(value))
  ]
  expected = f'a name that {path} defines'
  raise bad_input(field, got=attribute, expected=expected, choices=choices)


def _run(
  field: str, path: pathlib.Path, content: bytes, digest: str
) -> ModuleType:
  """Return the module of a file: run once, however many names it gives.

  What is compiled are the bytes that the digest is of; no .pyc is stored.
  """
  name = f'{path.stem}_{digest}'
  known = sys.modules.get(name)
  if getattr(known, '__file__', None) == str(path):
    return known
  module = ModuleType(name)
  module.__file__ = str(path)
  sys.modules[name] = module  # where dataclasses look their types up
  try:
    exec(compile(content, str(path), 'exec'), vars(module))
  except BaseException as error:  # somebody's program: anything
    del sys.modules[name]
    if isinstance(error, KeyboardInterrupt):
      raise
    raise bad_input(
      field,
      got=f'{_line_of(error, str(path))}{type(error).__name__}: {error}',
      expected=f'{path.name} to be a Python file that runs without an error',
      cause='a mistake in that file, or a file beside it that it imports: it '
      'is run alone, with what is installed',
    ) from error
  return module


def _line_of(error: BaseException, file: str | None) -> str:
  """Return 'net.py, line 3: ', the last line of the file that was run."""
  lines = [
    frame.lineno
    for frame in traceback.extract_tb(error.__traceback__)
    if frame.filename == file
  ]
  if isinstance(error, SyntaxError) and error.filename == file:
    lines = [error.lineno]
  return f'{pathlib.Path(file).name}, line {lines[-1]}: ' if lines else ''
