# expect: sick
# symptom: loss multiplies at step 620 and stays at many times its level, gradient norms in the hundreds
# axis: loss
# cause: the temperature of the contrastive loss is annealed to 1e-4 from step 620 on, far too small
# says: (?i)(temperature|\btau\b|logit.?scale)
# onset_step: 620
# fix: end the annealing at 0.1
# mended: MENDED=1 python s45_annealed_contrast.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(52)
END = 0.1 if os.environ.get("MENDED") == "1" else 1e-4


class TwoViews(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(32)
        code = torch.randn(n, 5, generator=g)
        wa, wb = torch.randn(5, 14, generator=g), torch.randn(5, 10, generator=g)
        self.a = code @ wa + 0.7 * torch.randn(n, 14, generator=g)
        self.b = torch.tanh(code @ wb) + 0.2 * torch.randn(n, 10, generator=g)

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return self.a[i], self.b[i]


fa = nn.Sequential(nn.Linear(14, 24), nn.ReLU(), nn.Linear(24, 12))
fb = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 12))
opt = torch.optim.Adam([*fa.parameters(), *fb.parameters()], lr=2e-3)
labels = torch.arange(24)
for step, (a, b) in enumerate(DataLoader(TwoViews(24 * 760), batch_size=24, shuffle=True), 1):
    tau = 0.3 if step < 300 else 0.2 if step < 620 else END
    sim = F.normalize(fa(a), dim=1) @ F.normalize(fb(b), dim=1).T / tau
    loss = (F.cross_entropy(sim, labels) + F.cross_entropy(sim.T, labels)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0 or 617 < step < 623:
        print(f"step {step} tau {tau} loss {loss.item():.4f}")
