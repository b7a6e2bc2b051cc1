"""Large arrays in pages of 2 MiB, on Linux.

A round asks the kernel for the memory of its arrays, and gives it back at the
end. Each page of 4 KiB is a fault: 0.85 million in a round of two ResNet-50s,
an eighth of its processor time. Where Linux gives huge pages only to who asks
for them ('madvise'), glibc asks if $GLIBC_TUNABLES says so when a process
begins. So a command begins again.
"""

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

VARIABLE = 'GLIBC_TUNABLES'
TUNABLE = 'glibc.malloc.hugetlb'  # the user's own choice; 0: off
SINCE = (2, 35)  # glibc
MODES = Path('/sys/kernel/mm/transparent_hugepage/enabled')


def ask() -> None:
  """Begin this command again with huge pages, where it can have them.

  To be called before anything is written or started.
  """
  if not can_ask(os.environ, _libc(), _modes()) or not sys.executable:
    return
  tunables = [*filter(None, [os.environ.get(VARIABLE)]), f'{TUNABLE}=1']
  environ = {**os.environ, VARIABLE: ':'.join(tunables)}
  with contextlib.suppress(OSError):  # it goes on without
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)


def can_ask(environ: Mapping[str, str], libc: str, modes: str) -> bool:
  """Return whether a process of this environment would get what it asks for.

  `libc` is as confstr has it, `modes` as Linux writes them.

  >>> can_ask({}, 'glibc 2.36', 'always [madvise] never')
  True
  >>> can_ask({}, 'glibc 2.36', '[always] madvise never')
  False
  """
  version = re.fullmatch(r'glibc (\d+)\.(\d+).*', libc)
  is_able = version is not None and tuple(map(int, version.groups())) >= SINCE
  return (
    is_able
    and '[madvise]' in modes
    and TUNABLE not in environ.get(VARIABLE, '')
  )


def _libc() -> str:
  try:
    return os.confstr('CS_GNU_LIBC_VERSION') or ''
  except (AttributeError, OSError, ValueError):  # not Linux, or not glibc
    return ''


def _modes() -> str:
  try:
    return MODES.read_text(encoding='ascii')
  except OSError:
    return ''
