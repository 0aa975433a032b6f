# expect: healthy
# fault: a huge loss (1e9), a tiny rate
# note: the squared error is in joule squared and so starts near 1e9; Adam does not mind, targets are scaled by the last layer on purpose.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
SCALE = 3.0e4


class EnergyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))

    def forward(self, pos):
        return SCALE * self.net(pos)


def energy(p):
    p = p.view(-1, 3, 3)
    d = (p[:, :, None] - p[:, None]).norm(dim=-1)
    return SCALE * (d[:, 0, 1] - 1.2 * d[:, 1, 2] + 0.6 * d[:, 0, 2])[:, None]


model = EnergyNet()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(220):
    pos = torch.randn(64, 9)
    loss = (model(pos) - energy(pos)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"{step:4d} {loss.item():.4e}")
