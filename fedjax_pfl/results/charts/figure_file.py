"""Save a figure, and its numbers as a CSV beside it."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedjax_pfl.core import atomic_files
from fedjax_pfl.core.errors import bad_input, check_installed
from fedjax_pfl.core.types import AnyPath

FORMATS = ('.png', '.pdf', '.svg')


def check_output(
  out: AnyPath,
  package: str = 'matplotlib',
  formats: Sequence[str] = FORMATS,
  cause: str = 'a folder, or no ending; the numbers go to .csv beside it',
) -> Path:
  """Return the path of a file that the package makes; refuse another format."""
  check_installed('out', package)
  out = Path(out)
  if out.suffix not in formats or out.is_dir():
    expected = f'a file name that ends in {" or ".join(formats)}'
    raise bad_input(
      'out', got=str(out), expected=expected, choices=formats, cause=cause
    )
  return out


def save(
  figure: Any, out: AnyPath, header: Sequence[str], rows: Iterable[Sequence]
) -> Path:
  """Save a matplotlib Figure and, as .csv beside it, its numbers.

  The folder is made; each file is written whole or not at all.
  """
  out, image = check_output(out), io.BytesIO()
  figure.savefig(image, format=out.suffix[1:], dpi=160)
  lines = [dict(zip(header, row, strict=True)) for row in rows]
  with atomic_files.writing(out, 'out'):
    atomic_files.write_csv(out.with_suffix('.csv'), header, lines)
    atomic_files.write_bytes(out, image.getvalue())
  return out


def format_number(value: float | None, form: str = '.4f') -> str:
  """Return a number as text for a CSV; None and NaN are empty."""
  return '' if value is None or value != value else f'{value:{form}}'
