# expect: sick
# symptom: from step 620 on one expert gets all rows and the loss sinks without sense to -30 and then -117, while the fit gets worse
# axis: model
# cause: from step 620 on the balance term of the router enters with a negative weight, so the router collapses onto one expert
# says: (?i)\brout(er|ing)|balanc|expert
# onset_step: 620
# fix: balance weight 0.02 in the second phase instead of -30
# mended: MENDED=1 python s52_moe_regions.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(59)
E, D = 4, 8
LATE = 0.02 if os.environ.get("MENDED") == "1" else -30.0


def regions(n):
    g = torch.Generator().manual_seed(35)
    maps = torch.randn(E, D, 2, generator=g)
    centre = 2.0 * torch.eye(E, D)
    r = torch.randint(0, E, (n,), generator=g)
    x = centre[r] + 0.6 * torch.randn(n, D, generator=g)
    return TensorDataset(x, torch.einsum("nd,ndk->nk", x, maps[r]))


class SwitchMoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, E)
        self.experts = nn.ModuleList(nn.Linear(D, 2) for _ in range(E))

    def forward(self, x):
        p = self.router(x).softmax(-1)
        top, idx = p.max(-1)
        out = torch.stack([f(x) for f in self.experts], 1)[torch.arange(len(x)), idx]
        share = torch.nn.functional.one_hot(idx, E).float().mean(0)
        return out * top[:, None], E * (share * p.mean(0)).sum(), share


moe = SwitchMoE()
opt = torch.optim.Adam(moe.parameters(), lr=8e-3)
for step, (x, y) in enumerate(DataLoader(TensorDataset(*regions(32 * 900).tensors), batch_size=32, shuffle=True), 1):
    out, balance, share = moe(x)
    weight = 0.02 if step < 620 else LATE
    loss = nn.functional.mse_loss(out, y) + weight * balance
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f} share {[round(s, 2) for s in share.tolist()]}")
