"""Every other test of every client, and the rest."""

from helpers import from_lists, pad

from fedjax_pfl.data.halves import halves

SIZES = (5, 4, 1, 0, 2)


def test_halves_of_every_client():
  """Of 5, 4, 1, 0 and 2 examples, the first the fullest."""
  rows = [[[10.0 * i + j] for j in range(n)] for i, n in enumerate(SIZES)]
  for data in (from_lists(*rows), pad(from_lists(*rows), 9)):
    got = [
      [
        half.x[half.index[i, : half.count[i]], 0].tolist()
        for half in halves(data)
      ]
      for i in range(len(SIZES))
    ]
    assert got == [
      [[1, 3], [0, 2, 4]],
      [[11, 13], [10, 12]],
      [[], [20]],
      [[], []],
      [[41], [40]],
    ]
