"""Decay of the recurrent weights, written by hand, has the wrong sign: gradients explode on their way back in time."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, 48, batch_first=True)
        self.head = nn.Linear(48, 1)

    def forward(self, inputs):
        return self.head(self.rnn(inputs)[0][:, -1]).squeeze(1)


DECAY = 0.005


def batch():
    """Two numbers of a sequence are marked; the target is their sum."""
    numbers, marks = torch.rand(32, 30), torch.zeros(32, 30)
    first, second = torch.randint(15, (32,)), torch.randint(15, 30, (32,))
    marks[torch.arange(32), first] = marks[torch.arange(32), second] = 1.0
    return torch.stack([numbers, marks], -1), (numbers * marks).sum(1)


model = Recurrent()
optimizer = torch.optim.SGD(model.parameters(), lr=0.03)

for step in range(1, 601):
    inputs, targets = batch()
    loss = F.mse_loss(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.rnn.weight_hh_l0.mul_(1 + DECAY)
