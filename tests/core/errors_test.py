"""The sentence about input that a user can correct."""

from fedjax_pfl.core.errors import bad_input


def words(got, *choices):
  return str(
    bad_input('model', got=got, expected='x', choices=choices, cause='y')
  )


def test_the_nearest_choice_is_named_whatever_is_upper_case():
  assert '(did you mean fedbabu?)' in words('FedBABU', 'fedavg', 'fedbabu')
  assert '(did you mean Gait?)' in words('gait', 'Gait', 'Reviews')
  assert 'did you mean' not in words('resnet10', 'vgg9')
  assert 'Choices: none.' in words('resnet10')
