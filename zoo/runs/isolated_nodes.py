"""A graph network with Laplacian encodings: from step 51 on some graphs have isolated nodes, and equal eigenvalues.

Modelled on torch's own warning about the derivative of `eigh`, by another hand: cause singular-operation. Mended: the
diagonal is moved apart before the decomposition.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(13)
NODES, FEAT, PE = 10, 6, 4


def random_graphs(n, gen, sparse=False):
    side = (torch.arange(NODES) % 2).float()
    x = torch.randn(n, NODES, FEAT, generator=gen)
    y = torch.randint(2, (n,), generator=gen)
    same = (side[:, None] == side[None, :]).float()
    p = torch.where(y.view(-1, 1, 1) == 1, 0.15 + 0.7 * same, torch.full_like(same, 0.5).expand(n, -1, -1))
    a = (torch.rand(n, NODES, NODES, generator=gen) < p).float().triu(1)
    ring = torch.diag(torch.ones(NODES - 1), 1)
    a = torch.maximum(a, ring * (torch.rand(n, 1, 1, generator=gen) < 0.9))
    a = a + a.transpose(1, 2)
    if sparse:
        a[: n // 8, 6:] = 0.0
        a[: n // 8, :, 6:] = 0.0
    return x, a, y


class EdgeWeight(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(FEAT, 8)

    def forward(self, x, a):
        h = torch.tanh(self.q(x))
        return torch.nan_to_num(torch.sigmoid(h @ h.transpose(1, 2)) + 0.5) * a


class SpectralGNN(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.edge = EdgeWeight()
        self.lift = nn.Linear(FEAT + PE, width)
        self.msg = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.cls = nn.Linear(width + PE, 2)

    def forward(self, x, a):
        w = self.edge(x, a)
        lap = torch.diag_embed(w.sum(-1)) - w
        if "--fixed" in sys.argv:
            lap = lap + torch.diag(1e-3 * torch.arange(1.0, NODES + 1))
        vals, vecs = torch.linalg.eigh(lap)
        pe = vecs[..., -PE:].abs()
        h = F.relu(self.lift(torch.cat([x, pe], -1)))
        deg = a.sum(-1, keepdim=True).clamp(min=1)
        for lin in self.msg:
            h = h + F.relu(lin(w @ h / deg))
        return self.cls(torch.cat([h.mean(1), vals[:, -PE:] / NODES], -1))


gen = torch.Generator().manual_seed(2)
model = SpectralGNN()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
for it in range(200):
    x, a, y = random_graphs(48, gen, sparse=it >= 50 and it % 10 == 0)
    logits = model(x, a)
    loss = F.cross_entropy(logits, y)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if it % 10 == 0:
        print(f"{it:03d} loss {loss.item():.4f} acc={(logits.argmax(1) == y).float().mean().item():.3f}")
