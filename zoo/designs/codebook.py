"""Healthy: codes from a book. The graph is cut three times, and each part gets its gradient on another way."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.book = nn.Linear(32, 16), nn.Embedding(32, 16)
        self.decoder = nn.Sequential(nn.Linear(16, 32), nn.Sigmoid())

    def forward(self, x):
        said = self.encoder(x)
        code = self.book(torch.cdist(said, self.book.weight).argmin(1))
        apart = F.mse_loss(code, said.detach()) + 0.25 * F.mse_loss(said, code.detach())
        return self.decoder(said + (code - said).detach()), apart


patterns = torch.rand(10, 32)
model = Codes()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(1, 201):
    seen = (patterns[torch.randint(10, (64,))] + 0.05 * torch.randn(64, 32)).clamp(0, 1)
    again, apart = model(seen)
    loss = F.mse_loss(again, seen) + apart
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
