"""Long streams are read in order, a chunk at a time, and the state goes on from chunk to chunk."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x, hidden=None):
        out, hidden = self.rnn(x, hidden)
        return self.head(out).squeeze(-1), hidden


streams = torch.sin(torch.arange(1201) * (0.1 + 0.2 * torch.rand(32, 1)) + 6 * torch.rand(32, 1))
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(2):
    hidden = None
    for start in range(0, 1200, 20):
        chunk = streams[:, start : start + 21]
        answer, hidden = model(chunk[:, :-1, None], hidden)
        hidden = hidden.detach()
        loss = nn.functional.mse_loss(answer, chunk[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
