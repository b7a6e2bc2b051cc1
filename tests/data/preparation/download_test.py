"""Downloads from a server on this machine that breaks, lies or is not there."""

import hashlib
import http.server
import threading

import pytest
from helpers import refused

from fedjax_pfl.data.preparation import download
from fedjax_pfl.data.preparation.archives import Archive

CONTENT = bytes(range(256)) * 400


class Server(http.server.ThreadingHTTPServer):
  """Serves `content`, at most `most` bytes a connection; keeps the requests."""

  daemon_threads = True
  content, most, ranges, requests, says_length = CONTENT, 10**9, True, (), True


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
    if server.says_length:
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


def test_a_file_is_fetched_once(tmp_path, server, archive):
  for _ in range(2):
    file = download.fetch(archive, tmp_path / 'downloads')
    assert file.read_bytes() == CONTENT
  assert server.requests == ('',)
  assert [path.name for path in file.parent.iterdir()] == ['a.zip']


@pytest.mark.parametrize(
  ('begun', 'requests'),
  [
    (0, ('', 'bytes=40000-', 'bytes=80000-')),
    (70_000, ('bytes=70000-',)),  # by another process
  ],
)
def test_a_connection_that_breaks_goes_on_where_it_broke(
  tmp_path, server, archive, begun, requests
):
  server.most = 40_000
  if begun:
    (tmp_path / 'a.zip.part').write_bytes(CONTENT[:begun])
  file = download.fetch(archive, tmp_path)
  assert file.read_bytes() == CONTENT
  assert server.requests == requests


def test_a_server_that_cannot_resume_begins_again(tmp_path, server, archive):
  server.ranges = False
  (tmp_path / 'a.zip.part').write_bytes(b'x' * 70_000)
  assert download.fetch(archive, tmp_path).read_bytes() == CONTENT


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
  assert f'from {archive.url}, ' in message or archive.url in message
  assert f'{tmp_path}/downloads/a.zip' in message
  assert 'Connection refused' in message
  assert 'a machine without a network' in message
  assert not (tmp_path / 'downloads').exists()


def test_a_folder_that_takes_no_file_sentence(tmp_path, archive):
  folder = tmp_path / 'folder'
  folder.write_text('a file')
  message = refused(lambda: download.fetch(archive, folder))
  assert f"data_dir: got '{folder}, in which {folder} cannot be" in message
  assert 'a disk that takes the archives and their arrays' in message


def test_another_file_copied_by_hand_sentence(tmp_path, archive):
  (tmp_path / 'a.zip').write_bytes(CONTENT[:-1])
  assert '102,399 bytes' in refused(download.fetch, archive, tmp_path)
  (tmp_path / 'a.zip').write_bytes(CONTENT[:-1] + b'x')
  message = refused(download.fetch, archive, tmp_path)
  assert f'expected 102,400 bytes with SHA-256 {archive.sha256}' in message
  assert (tmp_path / 'a.zip').exists()  # it is the user's


def test_another_content_is_removed(tmp_path, server, archive):
  server.content = CONTENT[:-1] + b'x'
  digest = hashlib.sha256(server.content).hexdigest()
  assert digest in refused(download.fetch, archive, tmp_path)
  assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('says_length', [True, False])
def test_the_page_of_a_proxy_is_no_archive(
  tmp_path, server, archive, says_length
):
  server.content, server.says_length = b'<html>' * 50_000, says_length
  message = refused(download.fetch, archive, tmp_path)
  assert 'the page of a proxy' in message
  # Refused before it is received, where the server says how long it is.
  assert (f'{archive.url} with 300,000 bytes' in message) == says_length
  assert not [*tmp_path.iterdir()]


def test_a_file_that_became_shorter_is_fetched_anew(tmp_path, server, archive):
  (tmp_path / 'a.zip.part').write_bytes(CONTENT[:90_000])
  server.content = CONTENT[:80_000]
  assert '416' in refused(download.fetch, archive, tmp_path)
  assert not [*tmp_path.iterdir()]
