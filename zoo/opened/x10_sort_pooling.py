# expect: healthy
# symptom: rows are sorted or grouped, which looks like an order that is not restored
# axis: none
# mended: none
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def ring(n):
    a = torch.zeros(n, n)
    i = torch.arange(n)
    a[i, (i + 1) % n] = 1
    return a


def star(n):
    a = torch.zeros(n, n)
    a[0, 1:] = 1
    return a


def tree(n):
    a = torch.zeros(n, n)
    for i in range(1, n):
        a[i, torch.randint(0, i, (1,)).item()] = 1
    return a


def make_batch(size, n_max=16):
    adj = torch.zeros(size, n_max, n_max)
    mask = torch.zeros(size, n_max)
    y = torch.randint(0, 3, (size,))
    for b in range(size):
        n = torch.randint(9, n_max + 1, (1,)).item()
        a = (ring, star, tree)[y[b]](n)
        noise = (torch.rand(n, n) < 0.03).float()
        a = ((a + a.t() + noise + noise.t()) > 0).float()
        p = torch.randperm(n)
        adj[b, :n, :n] = a[p][:, p]
        mask[b, :n] = 1
    return adj, mask, y


class GCNLayer(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)

    def forward(self, h, adj):
        adj = adj + torch.eye(adj.size(-1))
        return torch.tanh(adj @ self.lin(h) / adj.sum(-1, keepdim=True))


class DGCNN(nn.Module):
    def __init__(self, k=9, widths=(16, 16, 1)):
        super().__init__()
        self.k = k
        sizes = (2,) + tuple(widths)
        self.layers = nn.ModuleList(GCNLayer(a, b) for a, b in zip(sizes[:-1], sizes[1:]))
        total = sum(widths)
        self.conv1 = nn.Conv1d(1, 16, total, stride=total)
        self.conv2 = nn.Conv1d(16, 16, 3)
        self.fc = nn.Linear(16 * (k - 2), 3)

    def sort_pool(self, h, mask):
        key = h[..., -1].masked_fill(mask == 0, float("-inf"))
        order = key.argsort(dim=1, descending=True)[:, : self.k]
        return h.gather(1, order.unsqueeze(-1).expand(-1, -1, h.size(-1)))

    def forward(self, adj, mask):
        deg = adj.sum(-1, keepdim=True)
        h = torch.cat([deg / 4, mask.unsqueeze(-1)], -1)
        feats = []
        for layer in self.layers:
            h = layer(h, adj)
            feats.append(h)
        z = self.sort_pool(torch.cat(feats, -1), mask)
        z = F.relu(self.conv1(z.flatten(1).unsqueeze(1)))
        z = F.relu(self.conv2(z))
        return self.fc(z.flatten(1))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--lr", type=float, default=5e-3)
    args = ap.parse_args()
    torch.manual_seed(0)
    net = DGCNN()
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    for step in range(args.steps):
        adj, mask, y = make_batch(32)
        out = net(adj, mask)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 20 == 0:
            acc = (out.argmax(1) == y).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.4f} acc {acc:.2f}")
