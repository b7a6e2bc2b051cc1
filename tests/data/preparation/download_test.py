"""Downloads from a server on this machine that lies or is not there."""

import hashlib
import http.server
import threading

import pytest
from helpers import refused

from fedjax_pfl.data.preparation import download
from fedjax_pfl.data.preparation.download import Archive

CONTENT = bytes(range(256)) * 400


class Server(http.server.ThreadingHTTPServer):
  """Serves `content`, and counts the requests."""

  daemon_threads = True
  content, requests = CONTENT, 0


class Handler(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self.server.requests += 1
    self.send_response(200)
    self.send_header('Content-Length', str(len(self.server.content)))
    self.end_headers()
    self.wfile.write(self.server.content)

  def log_message(self, *args):
    pass


@pytest.fixture
def server(monkeypatch):
  for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy', 'ALL_PROXY'):
    monkeypatch.delenv(name, raising=False)
  with Server(('127.0.0.1', 0), Handler) as server:
    serve = server.serve_forever  # looks every 10 ms whether it is to end
    threading.Thread(target=serve, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def archive(server):
  url = f'http://127.0.0.1:{server.server_port}/a.zip'
  digest = hashlib.sha256(CONTENT).hexdigest()
  return Archive(url, len(CONTENT), digest, 'a.zip')


def test_a_file_is_fetched_once(tmp_path, server, archive):
  (tmp_path / 'a.zip.part').write_bytes(b'x' * 70_000)  # of a killed process
  for _ in range(2):
    file = download.fetch(archive, tmp_path)
    assert file.read_bytes() == CONTENT
  assert server.requests == 1
  assert [path.name for path in tmp_path.iterdir()] == ['a.zip']


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


@pytest.mark.parametrize('content', [b'<html>' * 50_000, CONTENT[:80_000]])
def test_another_content_is_removed(tmp_path, server, archive, content):
  server.content = content
  message = refused(download.fetch, archive, tmp_path)
  assert 'cut short, or the page of a proxy' in message
  assert not [*tmp_path.iterdir()]
