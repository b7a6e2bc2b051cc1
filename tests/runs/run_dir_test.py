"""What a run directory holds: metrics, scores, results."""

import json

import numpy as np
import pytest
from run_directories import begin, refused

from fedjax_pfl.core.errors import BadInput
from fedjax_pfl.runs import run_dir
from fedjax_pfl.runs.model_file import load_model, save_model

RESULT = {'algorithm': 'fedbabu', 'dataset': 'digits', 'rounds': 8}


def lines(run):
  return (run.path / 'metrics.jsonl').read_text().splitlines()


def without_time(run):
  return [{**json.loads(line), 'time': 0} for line in lines(run)]


def test_metrics_are_strict_json_lines_and_tensorboard_events(tmp_path):
  run = begin(tmp_path)
  numbers = {'loss': np.float32(0.5), 'initial/accuracy': float('nan')}
  run.log(round=np.int32(2), **numbers, up=np.array(7), best=-float('inf'))
  run.close()
  (line,) = lines(run)
  record = json.loads(line, parse_constant=pytest.fail)
  assert list(record)[:2] == ['round', 'time']
  numbers = {'loss': 0.5, 'initial/accuracy': None, 'up': 7, 'best': None}
  assert record == {'round': 2, 'time': record['time'], **numbers}
  assert [p.stat().st_size > 0 for p in (tmp_path / 'tb').iterdir()] == [True]


def test_a_resumed_run_has_the_metrics_of_an_unbroken_one(tmp_path):
  def play(run, first, last):
    for at in range(first, last + 1):
      run.log(round=at, loss=1 / (1 + at))
      if at % 4 == 0:
        run.save_checkpoint(at, {'w': np.float32(at)})

  whole, broken = begin(tmp_path / 'whole'), begin(tmp_path / 'broken')
  play(whole, 0, 12)
  play(broken, 0, 7)
  checkpointed = lines(broken)[:5]
  with open(tmp_path / 'broken' / 'metrics.jsonl', 'a') as stream:
    stream.write('{"round": 8, "ti')
  half = broken.model_path('view').with_name('.view.npz.123.tmp')
  half.write_bytes(b'of a process that was killed')
  again = begin(tmp_path / 'broken')
  assert run_dir.load_metrics(again.path)[-1]['round'] == 7
  step, tree = again.resume({'w': np.float32(0)})
  assert (step, tree['w']) == (4, 4)
  assert lines(again) == checkpointed and not half.exists()
  play(again, 5, 12)
  assert without_time(again) == without_time(whole)


@pytest.mark.parametrize('text', ['{"status": "fin', '{"status": "finished"}'])
def test_a_damaged_result_is_written_again(tmp_path, text):
  logged = []
  run = begin(tmp_path, log=logged.append)
  (tmp_path / 'result.json').write_text(text)  # without checksums, too
  assert run.result() is None and 'will be written again' in logged[0]
  with pytest.raises(BadInput, match='expected valid JSON'):
    run_dir.load_result(tmp_path)


def test_a_finished_run_has_its_status(tmp_path):
  run = begin(tmp_path)
  assert run.result() is None
  views = {'initial': {'mean': np.float64(50), 'interval': (40, float('nan'))}}
  run.write_result(**RESULT, seconds=1.5, views=views, bytes_up=12)
  again = begin(tmp_path)
  assert again.result() == run_dir.load_result(tmp_path)
  views = {'initial': {'mean': 50.0, 'interval': [40, None]}}
  more = {'status': 'finished', 'seconds': 1.5, 'views': views, 'bytes_up': 12}
  assert again.result() == {**RESULT, **more}


@pytest.mark.parametrize(
  'lines', [b'\0\n', b'{"round": 1}\n\0\n{"round": 2}\n']
)
def test_damaged_metrics_are_refused(tmp_path, lines):
  (tmp_path / 'metrics.jsonl').write_bytes(lines)
  message = refused(run_dir.load_metrics, tmp_path)
  assert 'which was changed or cut short before round' in message


def test_what_is_not_there_yet_is_a_sentence_that_names_the_nearest(tmp_path):
  begin(tmp_path / 'a')
  begin(tmp_path / 'b').log(round=1, loss=1.0)
  for load in (run_dir.load_metrics, run_dir.load_clients, run_dir.load_result):
    message = refused(load, tmp_path / 'a')
    assert 'expected a run directory that holds' in message
  message = refused(run_dir.load_metrics, tmp_path / 'a')
  assert f'Choices: {tmp_path / "b"}' in message


# ---- a model file


def test_a_missing_file_names_the_others(tmp_path):
  save_model(tmp_path / 'client_7.npz', {'bias': np.ones(2)}, {})
  with pytest.raises(BadInput) as caught:
    load_model(tmp_path / 'client_8.npz')
  assert "client_8.npz', expected a file that save_model" in str(caught.value)
  assert f'did you mean {tmp_path / "client_7.npz"}?' in str(caught.value)
  np.savez(tmp_path / 'clients.npz', ids=np.arange(3))
  with pytest.raises(BadInput, match="with an array 'meta'"):
    load_model(tmp_path / 'clients.npz')


def test_no_flipped_byte_and_no_cut_gives_a_wrong_number(tmp_path):
  path = tmp_path / 'm.npz'
  params = {'head': {'kernel': np.arange(6.0)}}
  save_model(path, params, {})
  whole = path.read_bytes()
  damaged = [whole[:length] for length in (0, 10, len(whole) - 1)]
  for at in range(0, len(whole), 3):
    damaged.append(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
  detected = 0
  for content in damaged:
    path.write_bytes(content)
    try:
      got, _ = load_model(path)
    except BadInput:
      detected += 1
      continue
    # Some bytes of a zip archive (times, attributes) have no meaning.
    np.testing.assert_equal(got, params)
  assert detected > len(damaged) / 2
