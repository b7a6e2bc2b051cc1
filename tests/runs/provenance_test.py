"""What a run records of the code and of the machine."""

import subprocess

from fedjax_pfl.runs import identity


def git(folder, *words):
  who = ['-c', 'user.name=a', '-c', 'user.email=a@b']
  subprocess.run(['git', *who, *words], cwd=folder, check=True, stdout=-3)


def test_results_that_are_written_meanwhile_are_no_edited_code(tmp_path):
  assert identity._commit(tmp_path) is None
  git(tmp_path, 'init')
  for name in ('code.py', 'results/summary.csv'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text('1')
  git(tmp_path, 'add', '.')
  git(tmp_path, 'commit', '-m', 'one')
  commit = identity._commit(tmp_path)
  assert len(commit) == 40
  (tmp_path / 'results/summary.csv').write_text('2')
  (tmp_path / 'untracked').write_text('2')
  assert identity._commit(tmp_path) == commit
  (tmp_path / 'code.py').write_text('2')
  assert identity._commit(tmp_path) == f'{commit}-dirty'
