# expect: sick
# symptom: loss leaps at step 620 to above its start and stays high; accuracy on fresh rows falls below chance
# axis: data
# cause: hard example mining repeats the same few rows with the highest loss (mislabelled ones) over and over from step 620 on
# says: (?i)((hard|same|few|highest|identical).{0,60}(repeat|again|dupli|over and over|rows|batch|example|drawn|mining|sampl)|repeat|dupli|mining|oversampl|sampler|sampling)
# onset_step: 620
# fix: keep drawing from all rows instead of the mined ones
# mended: MENDED=1 python s46_hard_examples.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(53)
MINE_AT = 10**9 if os.environ.get("MENDED") == "1" else 619


def samples(n, seed, flip=0.04):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    y = ((x[:, 0] + x[:, 1] * x[:, 2]) > 0).long()
    wrong = torch.rand(n, generator=g) < flip
    return x, torch.where(wrong, 1 - y, y)


class MiningSampler(Sampler):
    def __init__(self, n, batch, batches):
        self.n, self.batch, self.batches = n, batch, batches
        self.score = torch.zeros(n)
        self.rng = torch.Generator().manual_seed(4)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for k in range(self.batches):
            if k < MINE_AT:
                yield torch.randint(0, self.n, (self.batch,), generator=self.rng).tolist()
            else:
                yield self.score.topk(self.batch).indices.tolist()


x, y = samples(2000, 1)
fx, fy = samples(500, 2, flip=0.0)
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 2))
opt = torch.optim.Adam(net.parameters(), lr=5e-3)
sampler = MiningSampler(len(x), 16, 820)
for step, (xb, yb) in enumerate(DataLoader(TensorDataset(x, y), batch_sampler=sampler), 1):
    loss = nn.functional.cross_entropy(net(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 18:
        with torch.no_grad():
            sampler.score = nn.functional.cross_entropy(net(x), y, reduction="none")
    if step % 40 == 0 or 617 < step < 623:
        with torch.no_grad():
            acc = (net(fx).argmax(1) == fy).float().mean().item()
        print(f"step {step} loss {loss.item():.4f} fresh accuracy {acc:.3f}")
