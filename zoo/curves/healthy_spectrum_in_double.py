"""Laplacian encodings from `eigh` in double precision without a gradient, on symmetric graphs, by another hand."""

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(51)
N, PE = 12, 5


def ring(n):
    return torch.roll(torch.eye(n), 1, 0) + torch.roll(torch.eye(n), -1, 0)


def star(n):
    a = torch.zeros(n, n)
    a[0, 1:] = a[1:, 0] = 1
    return a


def two_cliques(n):
    h = torch.ones(n // 2, n // 2) - torch.eye(n // 2)
    return torch.block_diag(h, h)


def grid(n):
    a = torch.zeros(n, n)
    for i in range(n):
        if i % 4 < 3:
            a[i, i + 1] = a[i + 1, i] = 1
        if i + 4 < n:
            a[i, i + 4] = a[i + 4, i] = 1
    return a


SHAPES = [ring(N), star(N), two_cliques(N), grid(N)]


@torch.no_grad()
def spectral_pe(adj):
    lap = (torch.diag_embed(adj.sum(-1)) - adj).double()
    _, vecs = torch.linalg.eigh(lap)
    pe = vecs[..., 1 : PE + 1]
    flip = torch.randint(0, 2, (adj.shape[0], 1, PE)) * 2 - 1
    return (pe * flip).float()


def make(n):
    y = torch.randint(4, (n,))
    a = torch.stack([SHAPES[k] for k in y])
    drop = (torch.rand(n, N, N) < 0.05).triu(1)
    a = a * (~(drop | drop.transpose(1, 2))).float()
    perm = torch.stack([torch.randperm(N) for _ in range(n)])
    a = torch.gather(a, 1, perm.unsqueeze(-1).expand(-1, -1, N))
    a = torch.gather(a, 2, perm.unsqueeze(1).expand(-1, N, -1))
    signal = torch.randn(n, N, 1)
    return signal, a, y, (a @ signal).squeeze(-1) / 2


class PEGraphNet(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.inp = nn.Linear(1 + PE, d)
        self.m1, self.m2 = nn.Linear(d, d), nn.Linear(d, d)
        self.node, self.graph = nn.Linear(d, 1), nn.Linear(d, 4)

    def forward(self, s, a):
        h = torch.relu(self.inp(torch.cat([s, spectral_pe(a)], -1)))
        h = torch.relu(self.m1(h + a @ h))
        h = torch.relu(self.m2(h + a @ h))
        return self.node(h).squeeze(-1), self.graph(h.mean(1))


net = PEGraphNet()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for step in range(250):
    s, a, y, target = make(48)
    node, logit = net(s, a)
    loss = nn.functional.cross_entropy(logit, y) + nn.functional.mse_loss(node, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0 or step == 249:
        print(f"{step} loss {loss.item():.4f} acc {(logit.argmax(1) == y).float().mean():.3f}")
