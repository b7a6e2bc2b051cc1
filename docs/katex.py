"""Download KaTeX into the environment of the site: `make docs` runs this.

It is a package of npm, which fetches it by name; the file is compared with its
digest. The site serves it from its own folder: no page needs a network.
"""

import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = '0.16.22'
PACKAGE = f'katex@{VERSION}'
SHA256 = 'e9e0d167db3175481cbadaff38e8d90b130f6a3ddb451a47e43c577fd511f365'
WANTED = 'katex.min.js', 'katex.min.css', 'auto-render.min.js', '.woff2'
FOLDER = Path(sys.prefix) / 'katex'


def main():
  if not (npm := shutil.which('npm')):
    sys.exit(f'make docs needs npm, once, to fetch {PACKAGE}: install Node.js')
  with tempfile.TemporaryDirectory() as folder:
    command = [npm, 'pack', '--silent', PACKAGE, '--pack-destination', folder]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
      sys.exit(f'npm could not fetch {PACKAGE}; its message is above')
    archive = next(Path(folder).glob('*.tgz')).read_bytes()
  if hashlib.sha256(archive).hexdigest() != SHA256:
    sys.exit(f'{PACKAGE} is not the file that was tested')
  with tarfile.open(fileobj=io.BytesIO(archive)) as files:
    for member in files:
      _, _, name = member.name.partition('package/dist/')
      name = name.removeprefix('contrib/')
      if name.endswith(WANTED) and member.isfile():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files.extractfile(member).read())


if __name__ == '__main__':
  main()
