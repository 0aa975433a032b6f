# expect: sick
# symptom: the negative log-likelihood drops to absurd values in the thousands below zero, and samples are far too narrow around the mean
# axis: loss
# cause: the log-determinant of the coupling layers is summed over the whole batch instead of per sample, so it counts batch-size times in the likelihood and the flow is rewarded for blowing up the scale
# says: (log[-_ ]?det\w*|jacobian|log[-_ ]?(s|scale)s?|volume)[^.]*(batch|per[- ](sample|example|row)|all|dim|sum|scalar|reduc|over-?count|too (large|big|much))|(batch|sum)[^.]*(log[-_ ]?det|jacobian|log[-_ ]?(s|scale)\b)
# onset_step: 1
# fix: sum the log scales over the feature dimension only, log_s.sum(dim=1)
# mended: yes
import math
import os

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
DIM = 6


def sensor_table(n, gen):
    """Correlated, bent, two-regime measurements."""
    regime = (torch.rand(n, 1, generator=gen) < 0.4).float()
    a = torch.randn(n, 1, generator=gen)
    b = torch.randn(n, 1, generator=gen)
    e = torch.randn(n, 4, generator=gen)
    cols = [
        a,
        0.5 * a**2 - 0.5 + 0.3 * e[:, :1],
        b + 1.2 * (2 * regime - 1),
        torch.sin(2 * a) + 0.2 * e[:, 1:2],
        0.8 * b - 0.6 * a + 0.3 * e[:, 2:3],
        (2 * regime - 1) * 0.9 + 0.25 * e[:, 3:4],
    ]
    x = torch.cat(cols, 1)
    return (x - x.mean(0)) / x.std(0)


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.half = dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 2 * (dim - self.half)),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def _split(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        return (b, a) if self.flip else (a, b)

    def _join(self, a, b):
        return torch.cat((b, a) if self.flip else (a, b), 1)

    def _params(self, a):
        log_s, t = self.net(a).chunk(2, dim=1)
        return 1.5 * torch.tanh(log_s / 1.5), t

    def forward(self, x):
        a, b = self._split(x)
        log_s, t = self._params(a)
        y = self._join(a, b * log_s.exp() + t)
        return y, log_s.sum(dim=1) if MENDED else log_s.sum()

    def inverse(self, y):
        a, b = self._split(y)
        log_s, t = self._params(a)
        return self._join(a, (b - t) * (-log_s).exp())


class Flow(nn.Module):
    def __init__(self, dim, depth=8, hidden=48):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(Coupling(dim, hidden, flip=bool(i % 2)) for i in range(depth))

    def log_prob(self, x):
        total = 0.0
        for layer in self.layers:
            x, ld = layer(x)
            total = total + ld
        base = -0.5 * x.pow(2).sum(1) - 0.5 * self.dim * math.log(2 * math.pi)
        return base + total

    @torch.no_grad()
    def sample(self, n):
        z = torch.randn(n, self.dim)
        for layer in reversed(self.layers):
            z = layer.inverse(z)
        return z


@torch.no_grad()
def sliced_distance(x, y, k=64):
    proj = torch.randn(x.shape[1], k)
    proj = proj / proj.norm(dim=0)
    return ((x @ proj).sort(0).values - (y @ proj).sort(0).values).abs().mean().item()


def train(steps=500, batch=128, lr=1e-3):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    data, held = sensor_table(8000, gen), sensor_table(2000, gen)
    flow = Flow(DIM)
    opt = torch.optim.Adam(flow.parameters(), lr=lr)
    for step in range(1, steps + 1):
        x = data[torch.randint(len(data), (batch,))]
        nll = -flow.log_prob(x).mean()
        opt.zero_grad()
        nll.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        opt.step()
        if step % 50 == 0:
            s = flow.sample(2000)
            print(
                f"step {step:4d}  nll {nll.item():10.3f}  sample std {s.std(0).mean():.3f}  "
                f"sliced dist {sliced_distance(s, held):.3f}",
                flush=True,
            )
    return flow


if __name__ == "__main__":
    train()
