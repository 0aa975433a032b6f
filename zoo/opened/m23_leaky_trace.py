# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: model
# cause: the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# says: state|recurren|grow
# onset_step: 0
# fix: keep the factor between 0 and 1
# mended: yes
import os
import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

rng = np.random.default_rng(41)
torch.manual_seed(41)


def neuron_traces(n, steps=30):
    """Calcium-like traces: slow response to sparse spikes; predict the rate class."""
    rate = rng.integers(0, 3, n)
    p = np.array([0.05, 0.15, 0.35])[rate]
    spikes = (rng.random((n, steps)) < p[:, None]).astype(np.float32)
    kernel = 0.8 ** np.arange(10)
    trace = np.stack([np.convolve(s, kernel)[:steps] for s in spikes])
    trace += 0.1 * rng.standard_normal(trace.shape)
    return torch.tensor(trace, dtype=torch.float32).unsqueeze(-1), torch.tensor(rate)


class LeakyCell(nn.Module):
    def __init__(self, n_in, n_hid):
        super().__init__()
        self.inp = nn.Linear(n_in, n_hid)
        self.leak = nn.Linear(n_in, n_hid)

    def forward(self, x, h):
        keep = torch.sigmoid(self.leak(x)) if MENDED else 1 + torch.sigmoid(self.leak(x))
        return keep * h + self.inp(x)


class TraceClassifier(nn.Module):
    def __init__(self, n_hid=24):
        super().__init__()
        self.cell = LeakyCell(1, n_hid)
        self.n_hid = n_hid
        self.norm = nn.LayerNorm(n_hid)
        self.fc = nn.Linear(n_hid, 3)

    def forward(self, x):
        h = x.new_zeros(x.size(0), self.n_hid)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
        return self.fc(self.norm(h))


x, y = neuron_traces(900)
xt, yt = neuron_traces(300)
m, s = x.mean(), x.std()
x, xt = (x - m) / s, (xt - m) / s

clf = TraceClassifier()
opt = torch.optim.Adam(clf.parameters(), lr=3e-3)
for step in range(1, 46):
    rows = torch.randint(0, len(x), (64,))
    loss = nn.functional.cross_entropy(clf(x[rows]), y[rows])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(clf.parameters(), 1.0)
    opt.step()
    if step % 15 == 0:
        clf.eval()
        with torch.no_grad():
            acc = (clf(xt).argmax(1) == yt).float().mean().item()
        clf.train()
        print(f"{step} {loss.item():.4f} acc={acc:.3f}")
