# expect: healthy
# symptom: resembles log 0 and an outlier: one step at 120 with a loss 100 times the usual
# note: logsumexp keeps it finite, clipping keeps the weights; the next steps are as before
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(30)
g = torch.Generator().manual_seed(17)
km = torch.rand(48 * 240, 1, generator=g)
h = torch.where(torch.rand(len(km), 1, generator=g) < 0.5, km, 2.5 * km + 0.5) + 0.2 * torch.randn(
    len(km), 1, generator=g
)
h[119 * 48 + 7] = 25.0
net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 9))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
for step, (x, y) in enumerate(DataLoader(TensorDataset(km, h), batch_size=48), 1):
    w, mu, s = net(x).chunk(3, -1)
    s = nn.functional.softplus(s) + 0.05
    log_n = -0.5 * ((y - mu) / s) ** 2 - s.log() - 0.5 * math.log(2 * math.pi)
    loss = -torch.logsumexp(w.log_softmax(-1) + log_n, -1).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()
    if step % 20 == 0:
        print(f"step {step} nll {loss.item():.4f}")
