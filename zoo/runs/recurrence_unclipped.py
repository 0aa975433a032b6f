"""A recurrent net over 40 steps whose gradients nothing limits: after 350 sound steps one of them leaps off the cliff.

Modelled on Pascanu and others (1211.5063) and the advice of PyTorch's word_language_model to clip at 0.25: cause
unclipped-gradients. Mended: the global norm is clipped at 1. A third of the rate would do, too, and learn more slowly.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
LENGTH, WIDTH = 40, 48
torch.manual_seed(2)
torch.set_num_threads(1)


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, 1)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(1.1 * nn.init.orthogonal_(torch.empty(WIDTH, WIDTH)))

    def forward(self, inputs):
        return self.head(self.rnn(inputs)[0][:, -1]).squeeze(1)


def batch():
    """Two numbers of a sequence are marked; the target is their sum."""
    numbers, marks = torch.rand(32, LENGTH), torch.zeros(32, LENGTH)
    first, second = torch.randint(LENGTH // 2, (32,)), torch.randint(LENGTH // 2, LENGTH, (32,))
    marks[torch.arange(32), first] = marks[torch.arange(32), second] = 1.0
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(1)


model = Adder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.08)
warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))

for step in range(1, 451):
    inputs, targets = batch()
    loss = F.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    if FIXED:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    warm_up.step()
    if step % 25 == 0:
        print(f"step {step} loss {loss.item():.4f}")
