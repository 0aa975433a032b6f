# expect: healthy
# symptom: test nodes are in every forward pass, the widest layer never gets a gradient, dropout is switched on again at evaluation, an entropy of unlabelled nodes is in the loss; it resembles leakage and a forgotten eval()
# axis: none
# mended: none
import math
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class Graph(NamedTuple):
    x: torch.Tensor
    adj: torch.Tensor
    y: torch.Tensor
    train: torch.Tensor
    val: torch.Tensor
    test: torch.Tensor


def block_graph(n=900, classes=5, words=200, p_in=0.022, p_out=0.005, seed=0):
    """A citation-like graph: bag-of-words nodes, most links within a topic, few labels."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (n,), generator=g)
    prob = torch.where(y[:, None] == y[None], p_in, p_out)
    upper = torch.triu(torch.rand(n, n, generator=g) < prob, 1)
    edges = (upper | upper.T).nonzero().T
    topics = torch.rand(classes, words, generator=g) ** 6 * 0.25
    x = (torch.rand(n, words, generator=g) < topics[y] + 0.02).float()
    x = x / x.sum(1, keepdim=True).clamp_min(1)
    order = torch.randperm(n, generator=g)
    masks = [torch.zeros(n, dtype=torch.bool) for _ in range(3)]
    for m, part in zip(masks, (order[:400], order[400:600], order[600:])):
        m[part] = True
    loops = torch.arange(n).repeat(2, 1)
    idx = torch.cat([edges, loops], 1)
    deg = torch.bincount(idx[0], minlength=n).float()
    w = deg[idx[0]].rsqrt() * deg[idx[1]].rsqrt()
    adj = torch.sparse_coo_tensor(idx, w, (n, n)).coalesce()
    return Graph(x, adj, y, *masks)


class RandomProjection(nn.Module):
    """Fixed random features; saves the wide input layer."""

    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(d_in, d_out) / math.sqrt(d_out), requires_grad=False)

    def forward(self, x):
        return x @ self.weight


class DropEdge(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, adj):
        if not self.training or self.p == 0:
            return adj
        keep = (torch.rand(adj.values().shape) > self.p).float() / (1 - self.p)
        return torch.sparse_coo_tensor(adj.indices(), adj.values() * keep, adj.shape, is_coalesced=True)


class ResidualGCN(nn.Module):
    def __init__(self, d_in, classes, h=32, layers=3, alpha=0.15, p=0.6):
        super().__init__()
        self.proj = RandomProjection(d_in, 256)
        self.inp = nn.Linear(256, h)
        self.mix = nn.ModuleList(nn.Linear(h, h, bias=False) for _ in range(layers))
        self.norm = nn.ModuleList(nn.LayerNorm(h) for _ in range(layers))
        self.drop_edge, self.drop, self.alpha = DropEdge(0.2), nn.Dropout(p), alpha
        self.head = nn.Linear(h, classes)

    def forward(self, x, adj):
        adj = self.drop_edge(adj)
        h0 = h = F.elu(self.inp(self.drop(4.0 * self.proj(x))))
        for mix, norm in zip(self.mix, self.norm):
            agg = (1 - self.alpha) * torch.sparse.mm(adj, h) + self.alpha * h0
            h = h + self.drop(F.elu(mix(norm(agg))))
        return self.head(h)


@torch.no_grad()
def mc_predict(model, g, passes=8):
    model.eval()
    for m in model.modules():
        if isinstance(m, nn.Dropout):
            m.train()
    p = torch.stack([model(g.x, g.adj).softmax(-1) for _ in range(passes)])
    return p.mean(0)


def main():
    torch.manual_seed(0)
    g = block_graph()
    model = ResidualGCN(g.x.shape[1], 5)
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    print(f"nodes {len(g.y)} labelled {int(g.train.sum())} frozen parameters {frozen}")
    groups = [
        {"params": list(model.mix.parameters()), "weight_decay": 1e-2},
        {
            "params": [p for k, p in model.named_parameters() if p.requires_grad and not k.startswith("mix.")],
            "weight_decay": 5e-4,
        },
    ]
    opt = torch.optim.Adam(groups, lr=4e-3)
    best = (0.0, 0.0, 0)
    for step in range(260):
        model.train()
        logits = model(g.x, g.adj)
        loss = F.cross_entropy(logits[g.train], g.y[g.train])
        soft = logits[~g.train].softmax(-1)
        entropy = -(soft * soft.clamp_min(1e-8).log()).sum(-1).mean()
        total = loss + min(1.0, step / 150) * 0.1 * entropy
        opt.zero_grad()
        total.backward()
        opt.step()
        if step % 20 == 0 or step == 259:
            p = mc_predict(model, g)
            acc = lambda m: (p[m].argmax(-1) == g.y[m]).float().mean().item()
            ev = F.nll_loss(p[g.val].log(), g.y[g.val]).item()
            if acc(g.val) > best[0]:
                best = (acc(g.val), acc(g.test), step)
            print(f"step {step:3d} train {loss.item():.4f} val {ev:.4f} val_acc {acc(g.val):.3f}")
    print(f"selected on val: step {best[2]} val {best[0]:.3f} test {best[1]:.3f}")


if __name__ == "__main__":
    main()
