"""Healthy: a recurrent net without clipping whose gradients reach ten times the usual norm now and then."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

LENGTH = 40


class Adder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(2, 48, batch_first=True)
        self.head = nn.Linear(48, 1)
        with torch.no_grad():
            self.rnn.weight_hh_l0.copy_(nn.init.orthogonal_(torch.empty(48, 48)))

    def forward(self, inputs):
        return self.head(self.rnn(inputs)[0][:, -1]).squeeze(1)


model = Adder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

for step in range(1, 301):
    numbers, marks = torch.rand(32, LENGTH), torch.zeros(32, LENGTH)
    first, second = torch.randint(LENGTH // 2, (32,)), torch.randint(LENGTH // 2, LENGTH, (32,))
    marks[torch.arange(32), first] = marks[torch.arange(32), second] = 1.0
    loss = F.mse_loss(model(torch.stack([numbers, marks], -1)), (numbers * marks).sum(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")
