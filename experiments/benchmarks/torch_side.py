"""A round of a plain PyTorch loop, in a process of its own, as as_typed.py.

echo | python experiments/benchmarks/torch_side.py graph convnet4 10 10 50 0.9
"""

import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from experiments.benchmarks import torch_loop
from experiments.benchmarks.cases import Case

form, model, *numbers, momentum = sys.argv[1:]
clients, steps, batch = map(int, numbers)
case = Case(model, clients, steps, batch, momentum=float(momentum))
device = 'cuda' if torch.cuda.is_available() else 'cpu'
if device == 'cpu' and form in torch_loop.GRAPHS:
  sys.exit(f'{form} needs a GPU')
run = torch_loop.make_work(torch_loop.Side(case, form, device), 'training')
for _ in sys.stdin:
  began = time.perf_counter()
  run()
  print(time.perf_counter() - began, flush=True)
