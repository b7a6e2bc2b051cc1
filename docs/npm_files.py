"""Download the site's scripts into its environment: `make docs` runs this.

They are packages of npm, which fetches them by name; each archive is compared
with its digest. The site serves them from its own folder: no page needs a
network. KaTeX draws equations; iframe-worker lets the search work in pages that
are opened as files.
"""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# Digest of the archive, and the files of it that the site has.
PACKAGES = {
  'katex@0.16.22': (
    'e9e0d167db3175481cbadaff38e8d90b130f6a3ddb451a47e43c577fd511f365',
    ('katex.min.js', 'katex.min.css', 'auto-render.min.js', '.woff2'),
  ),
  'iframe-worker@1.0.4': (
    'e8c5d12d87829c503afba01d67772ea9f4aba5b7ae57a0c98e1917711030efbb',
    ('shim/index.js',),
  ),
}
PARTS = 'package/', 'dist/', 'contrib/'  # of paths, left out
FOLDER = Path(sys.prefix) / 'npm'


def main():
  if not (npm := shutil.which('npm')):
    sys.exit(f'make docs needs npm, once, for {[*PACKAGES]}: install Node.js')
  for package, (digest, wanted) in PACKAGES.items():
    with tempfile.TemporaryDirectory() as folder:
      command = [npm, 'pack', '--silent', package, '--pack-destination', folder]
      if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        sys.exit(f'npm could not fetch {package}; its message is above')
      archive = next(Path(folder).glob('*.tgz')).read_bytes()
    if hashlib.sha256(archive).hexdigest() != digest:
      sys.exit(f'{package} is not the file that was tested')
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
      for member in files:
        name = member.name
        for part in PARTS:
          name = name.removeprefix(part)
        if name.endswith(wanted) and member.isfile():
          path = FOLDER / name
          path.parent.mkdir(parents=True, exist_ok=True)
          path.write_bytes(files.extractfile(member).read())


if __name__ == '__main__':
  main()
