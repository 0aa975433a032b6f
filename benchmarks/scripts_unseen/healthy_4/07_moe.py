# expect: healthy
# cause: none, a mixture of experts with top-1 routing and a balance term that adds a constant floor near one to the loss
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(70)
E, D = 6, 24
maps = torch.randn(E, D, D) / D**0.5
keys = F.normalize(torch.randn(E, D), dim=1) * 2.5


def batch(n):
    regime = torch.randint(0, E, (n,))
    x = keys[regime] + 0.6 * torch.randn(n, D)
    return x, torch.tanh(torch.einsum("nij,nj->ni", maps[regime], x))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(D, 48), nn.Linear(48, D)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


class SparseLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D, E, bias=False)
        self.experts = nn.ModuleList(Expert() for _ in range(E))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        weight, pick = p.max(-1)
        y = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = (pick == e).nonzero().squeeze(1)
            if rows.numel():
                y = y.index_add(0, rows, expert(x[rows]) * weight[rows].unsqueeze(1))
        share = F.one_hot(pick, E).float().mean(0)
        return y, E * (share * p.mean(0)).sum(), share


layer = SparseLayer()
opt = torch.optim.AdamW(layer.parameters(), lr=4e-3)
for step in range(500):
    x, y = batch(192)
    out, balance, share = layer(x)
    task = F.mse_loss(out, y)
    loss = task + 0.05 * balance
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    opt.step()
    if step % 50 == 0 or step == 499:
        print(
            f"{step:3d} task {task.item():.4f} balance {balance.item():.3f} load",
            " ".join(f"{s:.2f}" for s in share.tolist()),
        )
