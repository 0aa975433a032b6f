# expect: sick
# symptom: validation accuracy peaks early, then sinks steadily while the steps become slower and slower; nothing explodes
# axis: data
# cause: The forward pass writes the edge list with the appended self-loops back into the shared graph, so every call adds another set of self-loops and the normalised neighbour messages fade away until the network only sees each node's own features.
# says: self[- _]?loop.*(accumulat|again|every|each|repeated|append|pile|grow|multipl|duplicat|more and more|in[- ]?place|written back|over and over|mutat)|(accumulat|again|repeated|append|grow|multipl|duplicat|in[- ]?place|mutat).*self[- _]?loop|edge[_ ]?(index|list|set).*(grow|accumulat|mutat|overwrit|in[- ]?place|reassign|append)
# onset_step: 2
# fix: keep the edges with self-loops in a local variable (or add them once before training)
# mended: yes
"""Topic of papers in a citation graph, two-layer GCN, full batch, few labels."""

import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn import Dropout, Linear, Module

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Graph:
    x: torch.Tensor
    y: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor
    train: torch.Tensor
    val: torch.Tensor

    @property
    def num_nodes(self):
        return self.x.shape[0]


def build_graph(n=1500, topics=6, words=200, seed=0):
    r = np.random.default_rng(seed)
    y = r.integers(0, topics, n)
    profile = r.dirichlet(np.full(words, 0.6), topics)
    common = r.dirichlet(np.full(words, 0.6))
    x = np.stack([r.multinomial(14, 0.22 * profile[c] + 0.78 * common) for c in y]).astype(np.float32)
    x = np.log1p(x)
    pairs = set()
    by_topic = [np.flatnonzero(y == c) for c in range(topics)]
    for i in range(n):
        for _ in range(r.poisson(3) + 1):
            j = r.choice(by_topic[y[i]]) if r.random() < 0.8 else r.integers(0, n)
            if i != j:
                pairs.add((i, int(j)))
                pairs.add((int(j), i))
    e = torch.tensor(sorted(pairs)).T
    perm = torch.from_numpy(r.permutation(n))
    return Graph(torch.from_numpy(x), torch.from_numpy(y), e[0], e[1], perm[:240], perm[240:])


def gcn_norm(src, dst, n):
    deg = torch.zeros(n).index_add_(0, dst, torch.ones(dst.shape[0]))
    inv = deg.clamp(min=1).rsqrt()
    return inv[src] * inv[dst]


class GraphConv(Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.lin = Linear(d_in, d_out)

    def forward(self, h, src, dst, weight):
        h = self.lin(h)
        return torch.zeros_like(h).index_add(0, dst, h[src] * weight[:, None])


class GCN(Module):
    def __init__(self, d_in, hidden, classes):
        super().__init__()
        self.conv1 = GraphConv(d_in, hidden)
        self.conv2 = GraphConv(hidden, classes)
        self.drop = Dropout(0.5)

    def forward(self, g):
        loop = torch.arange(g.num_nodes)
        src, dst = torch.cat([g.src, loop]), torch.cat([g.dst, loop])
        if not MENDED:
            g.src, g.dst = src, dst
        w = gcn_norm(src, dst, g.num_nodes)
        h = F.relu(self.conv1(self.drop(g.x), src, dst, w))
        return self.conv2(self.drop(h), src, dst, w)


def accuracy(logits, y):
    return (logits.argmax(-1) == y).float().mean().item()


def fit(steps=260):
    torch.manual_seed(0)
    g = build_graph()
    print(f"{g.num_nodes} papers, {g.src.numel()} links, {g.train.numel()} labelled")
    net = GCN(g.x.shape[1], 32, int(g.y.max()) + 1)
    opt = torch.optim.Adam(
        [
            {"params": net.conv1.parameters(), "weight_decay": 5e-4},
            {"params": net.conv2.parameters(), "weight_decay": 0.0},
        ],
        lr=5e-3,
    )
    for step in range(1, steps + 1):
        net.train()
        out = net(g)
        loss = F.cross_entropy(out[g.train], g.y[g.train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            net.eval()
            with torch.no_grad():
                out = net(g)
                vl = F.cross_entropy(out[g.val], g.y[g.val]).item()
            print(
                f"step {step:3d} loss {loss.item():.4f} train acc {accuracy(out[g.train], g.y[g.train]):.3f} "
                f"val loss {vl:.4f} val acc {accuracy(out[g.val], g.y[g.val]):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    fit()
