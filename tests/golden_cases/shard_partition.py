"""The shard partition, replayed from recorded draws."""

import numpy as np

from fedjax_pfl.data.partitions.shards import deal_blocks


def check_partition(case):
  """Replay the recorded draws: every index must come out, in order."""
  for name in case['sets']:
    for s in case['shards_per_client']:
      for split in ('train', 'test'):
        place = f'{name}/s{s}/{split}'
        if f'{place}/client_indices' not in case.digests:
          continue
        replay(case, place, case.arrays[f'{name}/{split}_labels'])
  case.finish(
    inputs=[
      f'{name}/{split}_labels'
      for name in case['sets']
      for split in ('train', 'test')
    ]
    + [
      key
      for key in case.arrays
      if key.endswith(('class_assignment', 'block_choice'))
    ]
  )


def replay(case, place, labels):
  chosen = case.arrays[f'{place}/block_choice']
  sizes = np.zeros_like(chosen)

  def choose(client, position, pool_size):
    sizes[client, position] = pool_size
    return int(chosen[client, position])

  assignment = case.arrays[f'{place}/class_assignment']
  clients = deal_blocks(labels.astype(int), assignment.astype(int), choose)
  case.check(f'{place}/pool_size', sizes)
  case.check(f'{place}/client_sizes', [len(rows) for rows in clients])
  case.check(f'{place}/client_indices', np.concatenate(clients))
  counts = [
    np.bincount(labels[rows], minlength=case['classes']) for rows in clients
  ]
  case.check(f'{place}/class_counts', counts)


CHECKS = {'shard partition': check_partition}
