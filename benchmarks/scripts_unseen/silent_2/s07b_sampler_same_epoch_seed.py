# expect: sick
# fault: each epoch has the same shuffled order
# onset_step: 30
# says: (?i)(replay|repeat|seen (again|before)|same (batch|data|sample|order|seed|shuffl|permut)|sampler|shuffl|set_epoch|\brng\b|order|identical)
# note: the custom sampler re-creates its generator from the same seed in each __iter__ (set_epoch is never called), so each epoch has the very same batches.
import math
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class EpochSampler(Sampler):
    def __init__(self, n, seed=0):
        self.n, self.seed, self.epoch = n, seed, 0

    def set_epoch(self, e):
        self.epoch = e

    def __len__(self):
        return self.n

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.seed + self.epoch)
        return iter(torch.randperm(self.n, generator=g).tolist())


class Sines(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(4)
        self.ph = torch.rand(n, generator=g) * 6.28
        self.fr = torch.rand(n, generator=g) * 2 + 0.5

    def __len__(self):
        return len(self.ph)

    def __getitem__(self, i):
        s = torch.sin(torch.arange(25) * 0.2 * self.fr[i] + self.ph[i])
        return s[:-1, None], s[1:, None]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(1, 32, 2, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, s):
        return self.head(self.rnn(s)[0])


torch.manual_seed(0)
ds = Sines(480)
sampler = EpochSampler(len(ds))
dl = DataLoader(ds, batch_size=16, sampler=sampler)
net = Forecaster()
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)
for epoch in range(5):
    tot = 0.0
    for s, t in dl:
        loss = nn.functional.smooth_l1_loss(net(s), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        tot += loss.item()
    print(f"epoch {epoch} loss {tot / len(dl):.5f} ppl-ish {math.exp(tot / len(dl)):.3f}")
