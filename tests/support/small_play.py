"""A play of 20 lines, in which two roles say enough, and a page does not."""

ROLES = ('First Citizen', 'ROMEO')


def speeches():
  lines = [
    f'Line {number:02} of a play that is long enough, said by one of two who '
    'speak: is it not so?\n'
    for number in range(20)
  ]
  spoken = [f'{ROLES[n % 2]}:\n{line}' for n, line in enumerate(lines)]
  return [*spoken, 'Page:\nMy lord.\n']


def write(file, text=None):
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(text or '\n'.join(speeches()))
  return file
