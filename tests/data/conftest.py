"""No test reads what another one, or a user, has stored."""

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
  monkeypatch.setenv('FEDJAX_PFL_CACHE', str(tmp_path / 'cache'))
