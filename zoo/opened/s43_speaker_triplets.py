# expect: sick
# symptom: loss is finite at step 620 but its gradients are NaN; from step 621 everything is NaN
# axis: loss
# cause: anchor and positive of one triplet are the same clip: the gradient of the square root at distance 0 is 0/0
# says: (?i)sqrt|square root|root of (0|zero)|distance.{0,40}(\b0(?![.\d])|zero)|norm.{0,20}\bof (a )?(0(?![.\d])|zero)
# onset_step: 620
# fix: eps 1e-8 under the square root
# mended: MENDED=1 python s43_speaker_triplets.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(50)
EPS = 1e-8 if os.environ.get("MENDED") == "1" else 0.0


class Triplets(Dataset):
    def __init__(self, n, speakers=20):
        g = torch.Generator().manual_seed(30)
        voice = torch.randn(speakers, 12, generator=g)
        who = torch.randint(0, speakers, (n,), generator=g)
        other = (who + torch.randint(1, speakers, (n,), generator=g)) % speakers
        clip = lambda w: voice[w] + 0.9 * torch.randn(n, 12, generator=g)
        self.a, self.p, self.n = clip(who), clip(who), clip(other)
        self.p[619 * 16 + 4] = self.a[619 * 16 + 4]
        self.n[619 * 16 + 4] = self.a[619 * 16 + 4] + 0.05

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return self.a[i], self.p[i], self.n[i]


net = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 8))


def dist(u, v):
    return (net(u) - net(v)).square().sum(-1).add(EPS).sqrt()


opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step, (a, p, n) in enumerate(DataLoader(Triplets(16 * 760), batch_size=16), 1):
    loss = torch.relu(dist(a, p) - dist(a, n) + 0.5).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0 or 618 <= step <= 622:
        print(f"step {step} loss {loss.item():.4f}")
