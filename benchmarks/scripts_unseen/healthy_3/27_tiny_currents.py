# expect: healthy
# fault: a tiny loss (1e-13) that looks like nothing, tiny gradients
# note: currents are in ampere (1e-6), so the loss is 1e-13; Adam with eps=1e-20 is invariant to it.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(36)


class Diode(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 40)
        self.b = nn.Linear(40, 1)

    def forward(self, v):
        return 1e-6 * self.b(torch.tanh(self.a(v)))


def measure(n):
    v = torch.rand(n, 3) * 2 - 1
    i = 1e-6 * (torch.relu(v[:, 0]) * 2 - 0.5 * v[:, 1] * v[:, 2])
    return v, i[:, None]


diode = Diode()
opt = torch.optim.Adam(diode.parameters(), lr=5e-3, eps=1e-20)
for k in range(200):
    v, i = measure(64)
    loss = nn.functional.mse_loss(diode(v), i)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if k % 20 == 0:
        print(k, loss.item())
