"""From a command line to settings; every mistake in it is one sentence.

A command imports this module first: it finds the repository then. It defines
its flags with absl, and with DEFINE_string a flag `config` if it takes one: a
config file, with an argument after a colon. Fields of the config are then given
as --config.rounds=5 --config.finetune.epochs=1,5. A command with a flag `run`
takes them for the configs of run directories. A command may take arguments
without a flag. It imports the package inside of its main: --help should not
wait for jax.
"""

import ast
import importlib.util
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from absl import app, flags, logging
from ml_collections import config_dict

ROOT = Path(__file__).parents[1]
CONFIG = 'a config file, e.g. digits:fedbabu[,quick]'  # the flag
OVERRIDE = re.compile(r'--?config\.([^=]+)(?:=(.*))?', re.DOTALL)
# Names of flags before version 0.3, accepted in it with a warning.
RENAMED = {
  **dict.fromkeys(('output', 'page'), 'out'),
  **dict.fromkeys(('runs', 'results', 'folder'), 'workdir'),
}
# A ~ that the shell leaves there; other fields have theirs replaced later.
HOME = re.compile(r'^(--?\w+=)~(?=/|$)')
if str(ROOT) not in sys.path:
  sys.path.insert(0, str(ROOT))

Overrides = dict[str, str]  # field -> what was written behind '='


def run(
  main: Callable[..., None],
  *,
  required: Sequence[str] = (),
  arguments: str = '',
  packages: Sequence[str] = (),
) -> None:
  """Parse the flags and call main(); exit 1 where input is bad.

  Without one of the optional `packages` that it needs nothing is begun.
  One that takes fields of a config gets main(overrides); one with `arguments`,
  which describe words without a flag, gets main(words), one or more. On
  SIGTERM and Ctrl-C it prints a sentence and exits with the usual status.
  """
  logging.set_verbosity(logging.WARNING)  # of libraries

  def parse(argv):
    overrides, words = parse_words(argv, required, arguments)
    for package in packages:
      from fedjax_pfl.core.errors import check_installed

      check_installed('this command', package)
    return [overrides] * _takes_fields() + [words] * bool(arguments)

  if {'--help', '-help', '-h'} & {*sys.argv[1:]}:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--help | head`
    app.usage(shorthelp=True, writeto_stdout=True)
    if _takes_fields():
      from fedjax_pfl.settings import document

      print(f'\n{document.as_text()}')
    sys.exit(0)
  # During training another handler saves a checkpoint first.
  signal.signal(signal.SIGTERM, _terminate)
  app.run(
    partial(_without_traceback, lambda arguments: main(*arguments)),
    flags_parser=partial(_without_traceback, parse),
  )


def log_progress(text: str) -> None:
  """Print to stderr."""
  print(f'{text} ..', file=sys.stderr, flush=True)


# ---- flags


def parse_words(
  argv: Sequence[str], required: Sequence[str] = (), expected: str = ''
) -> tuple[Overrides, list[str]]:
  """Return the fields that are given, and words without a flag.

  At least one word is required if `expected` describes them, else none.
  """
  overrides, rest = {}, []
  try:
    for arg in flags.FLAGS.read_flags_from_files([*argv], force_gnu=False):
      arg = _with_new_name(arg)
      arg = HOME.sub(lambda flag: flag[1] + os.path.expanduser('~'), arg)
      match = OVERRIDE.fullmatch(arg) if _takes_fields() else None
      if match is None:
        rest.append(arg)
      elif match[2] is None:
        raise _bad_flag(arg, f'{arg}=..., with the value behind "="')
      else:
        overrides[match[1]] = match[2]  # of two the last one counts
    given = flags.FLAGS(rest)[1:]
  except flags.UnrecognizedFlagError as error:
    name, expected = f'--{error.flagname}', 'a flag of this command'
    if _takes_fields():
      from fedjax_pfl.settings.schema import FIELDS

      if error.flagname in FIELDS:
        expected += f', or --config.{error.flagname}=.. for a field of a config'
    raise _bad_flag(name, expected) from error
  except flags.Error as error:
    raise _bad_flag(f'{error}', 'a flag with its value') from error
  if given and not expected:
    raise _bad_flag(' '.join(given), 'flags only')
  if expected and not given:
    raise _bad_flag('no word without a flag', expected)
  for name in required:
    require(name)
  return overrides, given


def _with_new_name(arg: str) -> str:
  """Return a flag by its present name; print that the old one will go."""
  match = re.fullmatch(r'--?(\w+)(=.*)?', arg, re.DOTALL)
  new = RENAMED.get(match[1]) if match else None
  if new is None or match[1] in flags.FLAGS or new not in flags.FLAGS:
    return arg
  print(
    f'--{match[1]} is now --{new}; version 0.4 takes no other.', file=sys.stderr
  )
  return f'--{new}{match[2] or ""}'


def require(name: str) -> None:
  """Refuse a command line without this flag."""
  if not flags.FLAGS[name].value:
    # absl adds lines to the help of a flag that may be repeated.
    text = flags.FLAGS[name].help.partition(';\n')[0]
    raise _bad_flag(f'no --{name}', f'--{name}=..., {text}')


def refuse_beside_form(
  overrides: Overrides, given: Sequence[flags.FlagHolder]
) -> None:
  """Refuse fields of a config and flags beside a form, which is frozen."""
  names = [f'config.{name}' for name in overrides]
  for name in names + [flag.name for flag in given if flag.value]:
    raise _bad_flag(f'--{name} with --form', 'a frozen form as it is')


def refuse_without_form(flag: flags.FlagHolder) -> None:
  if flag.value:
    raise _bad_flag(f'--{flag.name} without --form', 'the form that has it')


# ---- configs


def read_settings(
  config: str, overrides: Mapping[str, str] | None = None
) -> dict[str, Any]:
  """Return the settings of 'FILE[:ARGUMENT]' with fields replaced.

  >>> read_settings('configs/digits.py:fedbabu,quick', {'rounds': '4'})

  A field may be new (a hyperparameter in `hp`); whether it is a known one,
  and its value a good one, `fedjax_pfl.settings.validate` says. Code that the
  config or the command line names is loaded: both are the user's own.
  """
  file, colon, argument = config.partition(':')
  file = _find_config(file)
  get_config = _load_get_config(Path(file))
  made = _call_config(file, get_config, *[argument] * bool(colon))
  if not isinstance(made, config_dict.ConfigDict):
    raise _bad_config(
      f'{file}, whose get_config returns {type(made).__name__}',
      'a ConfigDict that comes from configs.common.base',
      'get_config without a return',
    )
  settings = _call_config(file, made.to_dict)  # a placeholder may be left
  replace_fields(settings, overrides or {})
  from fedjax_pfl.core.user_code import load_code  # brings jax, which is slow

  return load_code(settings)


def replace_fields(settings: dict[str, Any], overrides: Overrides) -> None:
  """Put what was written on the command line into the settings.

  Code that is named there is loaded; that of the settings is not.
  """
  for name, text in overrides.items():
    *groups, last = name.split('.')
    inner = settings
    for group in groups:
      inner = inner.setdefault(group, {})
      if not isinstance(inner, dict):
        cause = f'{group} has no fields of its own'
        given = {'got': name, 'choices': [group], 'cause': cause}
        raise _error(f'--config.{name}', expected='a field', **given)
    inner[last] = _value(text, inner.get(last))
  from fedjax_pfl.core.user_code import load_code

  given = {name: settings[name] for name in overrides if name in settings}
  settings.update(load_code(given))


def load_methods(names: Sequence[str]) -> list[str]:
  """Return the names of methods; code that they name is loaded."""
  from fedjax_pfl.core.user_code import load_code

  return [load_code({'algorithm': name})['algorithm'] for name in names]


def make_edit(overrides: Overrides) -> Callable[[dict[str, Any]], None] | None:
  """Return what puts the fields into a run's config; None without fields."""
  return partial(replace_fields, overrides=overrides) if overrides else None


def _takes_fields() -> bool:
  return 'config' in flags.FLAGS or 'run' in flags.FLAGS


def _find_config(file: str) -> str:
  """Return the path of a config: 'digits' is configs/digits.py."""
  named = ROOT / 'configs' / f'{file}.py'
  is_name = file.isidentifier() and not Path(file).is_file()
  return str(named) if is_name and named.is_file() else file


def _load_get_config(path: Path) -> Callable[..., Any]:
  expected = 'a Python file with a function get_config'
  spec = importlib.util.spec_from_file_location('config', path)
  if spec is None or not path.is_file():
    raise _bad_config(path, expected, 'a mistyped path, or another directory')
  module = importlib.util.module_from_spec(spec)
  _call_config(path, spec.loader.exec_module, module)
  if not callable(getattr(module, 'get_config', None)):
    raise _bad_config(
      f'{path} without get_config', expected, 'a file that is no config'
    )
  return module.get_config


def _call_config(path: str | Path, function: Callable, *arguments) -> Any:
  """Return what code of a config returns; what it raises in one sentence."""
  try:
    return function(*arguments)
  except BaseException as error:  # somebody's program: anything
    if isinstance(error, KeyboardInterrupt) or _is_bad_input(error):
      raise
    frames, whole = traceback.extract_tb(error.__traceback__), os.path.abspath
    lines = [x.lineno for x in frames if whole(x.filename) == whole(path)]
    line = f', line {lines[-1]}' if lines else ''
    got = f'{path}{line}: {type(error).__name__}: {error}'
    expected = 'a config that runs without an error'
    raise _bad_config(got, expected, 'a mistake in that file') from error


def _value(text: str, old: Any) -> Any:
  """Return the value that is meant, where a field had the value `old`."""
  if isinstance(old, str) and old != 'auto':  # which may become a number
    return text
  if isinstance(old, tuple):
    value = _literal(text)
    if isinstance(value, str) and ',' in value:
      return tuple(_literal(word.strip()) for word in value.split(','))
    return tuple(value) if isinstance(value, tuple | list) else (value,)
  if isinstance(old, bool) and text.lower() in ('true', 'false', '1', '0'):
    return text.lower() in ('true', '1')
  value = _literal(text)
  is_int = isinstance(value, int) and not isinstance(value, bool)
  return float(value) if isinstance(old, float) and is_int else value


def _literal(text: str) -> Any:
  """Return the number, tuple, None, ... that the text is; else the text."""
  try:
    return ast.literal_eval(text)
  except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
    return text  # TypeError: {[]: 1}


# ---- how a command ends


def _without_traceback(function: Callable, argument: Any) -> Any:
  try:
    return function(argument)
  except ValueError as error:
    if not _is_bad_input(error):
      raise
    sys.exit(f'{error}')
  except BrokenPipeError:  # `train .. | head`: its reader has left
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(128 + signal.SIGPIPE)
  except KeyboardInterrupt as stop:
    if not getattr(stop, 'logged', False):
      print('Stopped. What was saved is kept; the same command goes on.')
    # A thread in which XLA still compiles would crash the interpreter at its
    # own end, and the status would be that of the crash.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(getattr(stop, 'status', 128 + signal.SIGINT))


class _Terminated(KeyboardInterrupt):
  status = 128 + signal.SIGTERM


def _terminate(number, frame):
  raise _Terminated


def _is_bad_input(error: BaseException) -> bool:
  from fedjax_pfl.core.errors import BadInput

  return isinstance(error, BadInput)


def _error(name: str, **parts: Any) -> Exception:
  from fedjax_pfl.core.errors import bad_input

  return bad_input(name, **parts)


def _bad_flag(got: str, expected: str) -> Exception:
  known = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
  fields = ['--config.<field>=<value>'] * _takes_fields()
  return _error(
    'command line',
    got=got,
    expected=expected,
    choices=[*(f'--{flag.name}' for flag in known), *fields, '--help'],
    cause='a typing error, or a word that is missing or one too many',
  )


def _bad_config(got: str | Path, expected: str, cause: str) -> Exception:
  from configs import common

  return _error(
    '--config',
    got=str(got),
    expected=f'{expected}, as in {os.path.relpath(common.FOLDER)}',
    # Without the folder: from afar its path would fill the sentence.
    choices=[path.name for path in common.config_files()],
    cause=cause,
  )
