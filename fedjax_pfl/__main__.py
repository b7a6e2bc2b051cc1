"""fedjax-pfl SUBCOMMAND ...: runs the file of experiments/ of that name."""

import runpy
import sys

from fedjax_pfl import __version__
from fedjax_pfl.core.commands import SUBCOMMANDS, folder
from fedjax_pfl.core.errors import bad_input


def main() -> None:
  """Run the subcommand with the flags behind it."""
  words = sys.argv[1:]
  if not words or words[0] in ('--help', '-help', '-h'):
    print(usage())
    return
  if words[0] == '--version':
    print(__version__)
    return
  if words[0] not in SUBCOMMANDS:
    error = bad_input(
      'fedjax-pfl',
      got=words[0],
      expected='a subcommand',
      choices=[*SUBCOMMANDS, '--help', '--version'],
    )
    sys.exit(f'{error}')
  experiments = folder() / 'experiments'
  file = experiments / f'{SUBCOMMANDS[words[0]][0]}.py'
  sys.argv = [str(file), *words[1:]]
  sys.path.insert(0, str(experiments))
  runpy.run_path(str(file), run_name='__main__')


def usage() -> str:
  """Return the list of subcommands."""
  lines = [f'  {name:16} {text}' for name, (_, text) in SUBCOMMANDS.items()]
  head = 'fedjax-pfl SUBCOMMAND ...; SUBCOMMAND --help lists its flags\n'
  return '\n'.join([head, *lines])


if __name__ == '__main__':
  main()
