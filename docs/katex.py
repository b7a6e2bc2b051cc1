"""Download KaTeX into the environment of the site: `make docs` runs this.

It is an npm package, compared with its digest; Node is not needed. The site
serves it from its own folder, so that no page needs a network.
"""

import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path

VERSION = '0.16.22'
URL = f'https://registry.npmjs.org/katex/-/katex-{VERSION}.tgz'
SHA256 = 'e9e0d167db3175481cbadaff38e8d90b130f6a3ddb451a47e43c577fd511f365'
WANTED = 'katex.min.js', 'katex.min.css', 'auto-render.min.js', '.woff2'
FOLDER = Path(sys.prefix) / 'katex'


def main():
  with urllib.request.urlopen(URL, timeout=60) as answer:
    archive = answer.read()
  if hashlib.sha256(archive).hexdigest() != SHA256:
    sys.exit(f'{URL} is not the file that was tested')
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
