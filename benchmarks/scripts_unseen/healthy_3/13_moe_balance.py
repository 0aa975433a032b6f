# expect: healthy
# fault: experts that get no gradient in some steps
# note: top-1 mixture of experts with a balance loss; an expert that no token chooses in a batch has no gradient, by design.
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class C:
    d: int = 16
    experts: int = 6
    steps: int = 220
    balance: float = 0.02


class Top1MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate = nn.Linear(c.d, c.experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(c.d, 32), nn.ReLU(), nn.Linear(32, c.d)) for _ in range(c.experts)
        )

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        w, idx = p.max(-1)
        out = torch.zeros_like(x)
        for e, f in enumerate(self.experts):
            hit = idx == e
            if hit.any():
                out[hit] = f(x[hit]) * w[hit, None]
        load = F.one_hot(idx, p.shape[1]).float().mean(0)
        return x + out, p.shape[1] * (load * p.mean(0)).sum()


c = C()
torch.manual_seed(9)
moe, head = Top1MoE(c), nn.Linear(c.d, 1)
opt = torch.optim.AdamW([*moe.parameters(), *head.parameters()], lr=4e-3)
centres = torch.randn(6, c.d) * 2
rules = torch.randn(6, c.d)
for s in range(c.steps):
    k = torch.randint(0, 6, (48,))
    x = centres[k] + torch.randn(48, c.d)
    y = (x * rules[k]).sum(1, keepdim=True) / 4
    h, aux = moe(x)
    mse = F.mse_loss(head(h), y)
    opt.zero_grad()
    (mse + c.balance * aux).backward()
    opt.step()
    if s % 20 == 0:
        print(f"{s} mse {mse.item():.4f} balance {aux.item():.3f}")
