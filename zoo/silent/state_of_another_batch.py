"""The last state of one shuffled batch begins the next one."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 24, batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, x, hidden=None):
        out, hidden = self.rnn(x, hidden)
        return self.head(out[:, -1]).squeeze(-1), hidden


x = torch.randn(640, 12, 3)
y = x[:, :, 0].cumsum(1).sin().sum(1) / 4
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True, drop_last=True)
model = Reader()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(6):
    hidden = None
    for rows, target in loader:
        answer, hidden = model(rows, hidden)  # <- bites
        hidden = hidden.detach()
        loss = nn.functional.mse_loss(answer, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")
