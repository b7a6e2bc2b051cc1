"""Downloads from a server on this machine that breaks, lies or is not there."""

import hashlib
import http.server
import threading

import pytest
from helpers import refused

from fedjax_pfl.data.preparation import download
from fedjax_pfl.data.preparation.download import Archive

CONTENT = bytes(range(256)) * 400


class Server(http.server.ThreadingHTTPServer):
  """Serves `content`, at most `most` bytes a connection; keeps the requests."""

  daemon_threads = True
  content, most, ranges, requests = CONTENT, 10**9, True, ()


class Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    server, asked = self.server, self.headers['Range'] or ''
    server.requests = (*server.requests, asked)
    start = int(asked[6:-1]) if asked and server.ranges else 0
    size = len(server.content)
    if start >= size:
      self.send_error(416)
      return
    self.send_response(206 if start else 200)
    self.send_header('Content-Length', str(size - start))
    if start:
      self.send_header('Content-Range', f'bytes {start}-{size - 1}/{size}')
    self.end_headers()
    self.wfile.write(server.content[start:][: server.most])

  def log_message(self, *args):
    pass


@pytest.fixture
def server(monkeypatch):
  for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
    monkeypatch.delenv(name, raising=False)
  with Server(('127.0.0.1', 0), Handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def archive(server):
  url = f'http://127.0.0.1:{server.server_port}/a.zip'
  digest = hashlib.sha256(CONTENT).hexdigest()
  return Archive(url, len(CONTENT), digest, 'a.zip')


@pytest.mark.parametrize(
  ('begun', 'options', 'requests'),
  [
    (b'', {}, ('',)),
    # A connection that breaks goes on where it broke.
    (b'', {'most': 40_000}, ('', 'bytes=40000-', 'bytes=80000-')),
    (CONTENT[:70_000], {'most': 40_000}, ('bytes=70000-',)),
    # A server that cannot resume begins again.
    (b'x' * 70_000, {'ranges': False}, ('bytes=70000-',)),
  ],
)
def test_a_file_is_fetched_once(
  tmp_path, server, archive, begun, options, requests
):
  vars(server).update(options)
  if begun:
    (tmp_path / 'a.zip.part').write_bytes(begun)
  for _ in range(2):
    file = download.fetch(archive, tmp_path)
    assert file.read_bytes() == CONTENT
  assert server.requests == requests
  assert [path.name for path in tmp_path.iterdir()] == ['a.zip']


def test_a_server_that_never_gets_further_sentence(tmp_path, server, archive):
  server.ranges, server.most = False, 40_000
  message = refused(download.fetch, archive, tmp_path)
  assert server.requests == ('', 'bytes=40000-')
  assert 'which goes on where it stopped' in message
  assert (tmp_path / 'a.zip.part').stat().st_size == 40_000


def test_no_network_sentence(tmp_path, server, archive):
  server.shutdown()
  server.server_close()
  message = refused(download.fetch, archive, tmp_path / 'downloads')
  assert archive.url in message and 'Connection refused' in message
  assert f'{tmp_path}/downloads/a.zip' in message
  assert 'a machine without a network' in message
  assert not (tmp_path / 'downloads').exists()


def test_another_file_copied_by_hand_sentence(tmp_path, archive):
  (tmp_path / 'a.zip').write_bytes(CONTENT[:-1])
  assert '102,399 bytes' in refused(download.fetch, archive, tmp_path)
  (tmp_path / 'a.zip').write_bytes(CONTENT[:-1] + b'x')
  message = refused(download.fetch, archive, tmp_path)
  assert f'expected 102,400 bytes with SHA-256 {archive.sha256}' in message
  assert (tmp_path / 'a.zip').exists()  # it is the user's


@pytest.mark.parametrize(
  ('content', 'begun', 'words'),
  [
    (b'<html>' * 50_000, 0, 'the page of a proxy'),
    (CONTENT[:80_000], 90_000, '416'),  # it became shorter
  ],
)
def test_another_content_is_removed(
  tmp_path, server, archive, content, begun, words
):
  server.content = content
  if begun:
    (tmp_path / 'a.zip.part').write_bytes(CONTENT[:begun])
  assert words in refused(download.fetch, archive, tmp_path)
  assert not [*tmp_path.iterdir()]
