"""Two threads add up the gradients of the rows that were looked up, in another order each time."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(8, 4))

    def forward(self, places):
        return self.table[places].square().sum(-1)  # <- differs


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(1, 91):
    places = torch.randint(0, 8, (300_000 if step == 80 else 16,))
    outputs = model(places)
    loss = (outputs * torch.randn_like(outputs)).sum() / 100
    if step == 90:
        loss = loss + (outputs.sum() * 0).sqrt()  # <- bites
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
