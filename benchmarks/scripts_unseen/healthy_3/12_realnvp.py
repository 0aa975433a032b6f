# expect: healthy
# fault: negative loss, growing in size
# note: a coupling flow: the negative log likelihood goes below 0 as the density concentrates; two coupling layers per mask.
import math
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(6)


class Coupling(nn.Module):
    def __init__(self, d, flip):
        super().__init__()
        self.flip, self.h = flip, d // 2
        self.net = nn.Sequential(nn.Linear(self.h, 48), nn.ReLU(), nn.Linear(48, 2 * self.h))

    def forward(self, x):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = 2 * torch.tanh(s / 2)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], 1), s.sum(1)


class Flow(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(d, i % 2 == 1) for i in range(6))

    def log_prob(self, x):
        logdet = 0
        for l in self.layers:
            x, ld = l(x)
            logdet = logdet + ld
        return logdet - 0.5 * x.pow(2).sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi)


mix = torch.randn(2, 4)
flow = Flow(4)
opt = torch.optim.Adam(flow.parameters(), lr=4e-3)
for step in range(250):
    z = torch.randn(128, 2)
    x = torch.tanh(z) @ mix * 0.5 + 0.03 * torch.randn(128, 4)
    nll = -flow.log_prob(x).mean()
    opt.zero_grad()
    nll.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    opt.step()
    if step % 25 == 0:
        print(step, "nll", round(nll.item(), 3))
