"""Read the heart disease data of four hospitals, which the package brings.

740 patients of Cleveland, Budapest (hungarian), Zurich and Basel (switzerland)
and Long Beach (va): UCI's "Heart Disease" (A. Janosi, W. Steinbrunn,
M. Pfisterer and R. Detrano, 1988; CC BY 4.0), as FLamby's Fed-Heart-Disease
prepares it. Of 14 columns three that are mostly missing are left out, then rows
with a gap; chest pain and ECG are 0 or 1 for each level but the first. A third
of a hospital's patients are for testing, by FLamby's draw.
"""

import pathlib

from fedjax_pfl.data import table
from fedjax_pfl.data.images import Dataset, Shape, Where

FILE = pathlib.Path(__file__).with_name('heart.csv.gz')


def peek(where: Where) -> Shape:
  """Return what is known of the patients, and how many hospitals there are."""
  return table.peek(_installed(where))


def load(where: Where) -> Dataset:
  """Return the patients, with the hospital of each one."""
  return table.load(_installed(where))


def _installed(where: Where) -> Where:
  columns = where.table._replace(
    label=('disease',), client='hospital', split='split'
  )
  return where._replace(data_dir=str(FILE), table=columns)
