"""How unlike clients are, and the page that follows from stored counts."""

import numpy as np
import pytest
from pages import ROOT

from experiments.natural import gains, unlike
from fedjax_pfl.core.types import ClientData


@pytest.mark.parametrize('turned, borrowed', [(False, 0), (True, 1)])
def test_a_borrowed_model_is_worth_what_its_answers_are(turned, borrowed):
  """Of two clients with the same inputs and the same or turned labels."""
  x = np.tile(np.arange(20.0)[:, None], (2, 1))
  y = np.tile(np.arange(20) >= 10, 2)
  y[20:] ^= turned
  index = np.arange(40).reshape(2, 20)
  data = ClientData(x, y.astype(int), index, np.array([20, 20]))
  expected = [[0, borrowed], [borrowed, 0]]
  np.testing.assert_array_equal(unlike.errors_of(data, data), expected)


def test_the_page_and_its_figure_are_those_of_the_counts():
  found = gains.read(ROOT)
  page = (ROOT / gains.PAGE).read_text()
  assert gains.section(found) in page
  numbers = (ROOT / gains.FIGURE).with_suffix('.csv').read_text()
  for gain in found:
    assert f'{gain.shares[0]:.4f}' in numbers
