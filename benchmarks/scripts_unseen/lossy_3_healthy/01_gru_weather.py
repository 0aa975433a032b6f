# expect: healthy
# fault: rate multiplied by 60 by a plateau callback with the wrong factor
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(1)


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 32, batch_first=True)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        return self.out(self.gru(x)[0][:, -1]).squeeze(1)


def windows(n):
    s = torch.rand(n, 1) * 200
    t = s + torch.arange(25)
    y = torch.sin(t / 3) + 0.3 * torch.sin(t / 1.1) + 0.03 * torch.randn(n, 25)
    return y[:, :24, None], y[:, 24]


model = Forecaster()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(180):
    x, y = windows(48)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"loss {loss.item():.4f}")
