"""Small optimised programs whose costs are counted by hand in the tests."""

from pathlib import Path


def _read(name):
  return (Path(__file__).parent / 'hlo' / f'{name}.hlo').read_text()


LOOP = _read('loop')  # of unknown length: 8 rows of 100, times a matrix
KNOWN = LOOP.replace(
  ' metadata={op_name',
  ' backend_config={"known_trip_count":{"n":"7"}}, metadata={op_name',
)
# A TPU's compiler writes no number: it is in the condition of the loop.
BOUNDED = LOOP.replace(
  '%n = s32[] get-tuple-element(%carry.1), index=4', '%n = s32[] constant(7)'
)
EPOCHS = _read('epochs')  # the same loop inside of another
TILED = _read('tiled')  # of a TPU: tiles, results in its fast memory S(1)
LIBRARIES = _read('libraries')  # of a GPU: second results are workspace
MESH = _read('mesh')  # a start and its end; a reduction in a loop of three
