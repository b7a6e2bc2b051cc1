"""FedAvg in plain PyTorch as an entry of the leaderboard, without the package:

fedjax-pfl export-partition --form=demo --out=demo
python docs/examples/pytorch_entry.py demo entry
fedjax-pfl verify entry
"""

import copy
import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

SOURCE, OUT = map(Path, sys.argv[1:])
FORM = json.loads((SOURCE / 'form.json').read_text())
IMAGES, ROUNDS, COHORT, EPOCHS = np.load(SOURCE / 'images.npz'), 25, 18, 5


def examples(side, clients):
  for rows in clients:
    x = torch.tensor(IMAGES[f'{side}_x'][rows]).permute(0, 3, 1, 2)
    yield x / 127.5 - 1, torch.tensor(IMAGES[f'{side}_y'][rows]).long()


def make_model():  # convnet3; BatchNorm uses the statistics of the batch
  layers = []
  for channels in (1, 64, 64):
    norm = nn.BatchNorm2d(64, track_running_stats=False)
    conv = nn.Conv2d(channels, 64, 3, padding=1)
    layers += [conv, norm, nn.ReLU(), nn.MaxPool2d(2)]
  return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 10))


def fit(model, x, y, rate):  # a copy
  model = copy.deepcopy(model)
  sgd = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
  for _ in range(EPOCHS):
    for rows in torch.randperm(len(y)).split(10):
      sgd.zero_grad()
      nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
      sgd.step()
  return model


@torch.no_grad()
def right(models, data):
  pairs = zip(models, data, strict=True)
  return [int((net(x).argmax(1) == y).sum()) for net, (x, y) in pairs]


def run(seed, rate):  # right answers [V, K], tests [K], right on validation
  torch.manual_seed(seed)
  model = make_model()
  rows = json.loads((SOURCE / f'seed_{seed}.json').read_text())
  train, held = ([*examples('train', rows[p])] for p in ('train', 'validation'))
  test = [*examples('test', rows['test'])]
  for _ in range(ROUNDS):
    own = [train[k] for k in torch.randperm(len(train))[:COHORT]]
    states = [fit(model, x, y, rate).state_dict() for x, y in own]
    parts, total = [len(y) for _, y in own], sum(len(y) for _, y in own)
    for name, value in model.state_dict().items():
      sums = (n * s[name] for n, s in zip(parts, states, strict=True))
      value.copy_(sum(sums) / total)
  tuned = [fit(model, x, y, rate) for x, y in train]
  counts = [right([model] * len(test), test), right(tuned, test)]
  return counts, [[len(y) for _, y in test]] * 2, sum(right(tuned, held))


tried = {rate: run(0, rate) for rate in (0.003, 0.01, 0.03)}
rate = max(tried, key=lambda one: tried[one][2])
runs = [tried[rate], *(run(seed, rate) for seed in FORM['seeds'][1:])]
correct, total = (np.array([one[at] for one in runs]) for at in (0, 1))
means = (100 * correct / total).mean((0, 2)).round(2).tolist()
sent = 4 * sum(w.numel() for w in make_model().parameters()) * ROUNDS * COHORT
entry = json.loads((SOURCE / 'entry.json').read_text())
entry |= {'method': 'FedAvg (PyTorch)', 'authors': 'A. Author'}
entry |= {'paper': 'arxiv.org/abs/1602.05629', 'code': 'pytorch_entry.py'}
entry |= {'framework': f'PyTorch {torch.__version__}', 'view': '5 epochs'}
entry |= {'settings': {'learning_rate': rate}, 'trainings': len(tried) + 2}
entry |= {'gradients': 2 * EPOCHS * ROUNDS * COHORT}  # two batches a client
entry |= {'bytes_up': sent, 'bytes_down': sent}
entry |= {'accuracy': dict(zip(['before', 'after'], means, strict=True))}
OUT.mkdir()
(OUT / 'entry.json').write_text(json.dumps(entry, indent=2) + '\n')
arrays = {'correct': correct.astype('int32'), 'total': total.astype('int32')}
arrays |= {'seed': FORM['seeds'], 'view': ['before', 'after']}
np.savez_compressed(OUT / 'clients.npz', **arrays)
