# expect: sick
# symptom: the loss stops early on a plateau, the R2 on held-out molecules stays low, no error
# axis: model
# cause: the MLP builder puts a ReLU after the last layer as well, so predictions can never be negative
# says: (?i)relu.{0,90}(last|final|output|negativ|end|target|head|predict)|(negativ|last|final|output|head).{0,90}relu
# onset_step: 0
# fix: leave out the activation after the last layer of the readout
# mended: the script applies that change if the environment has MENDED=1
"""Regression of a standardised property of small molecules (graphs) with a message passing network."""

import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
NODES, KINDS = 14, 5


def make_graphs(n, seed):
    """Random trees with a few ring closures; the property adds atom terms and bond terms."""
    rng = np.random.default_rng(seed)
    table = np.random.default_rng(50)
    atom = table.normal(0, 1, KINDS)
    bond = table.normal(0, 0.7, (KINDS, KINDS))
    bond = (bond + bond.T) / 2
    feats = np.zeros((n, NODES, KINDS), np.float32)
    adj = np.zeros((n, NODES, NODES), np.float32)
    mask = np.zeros((n, NODES), np.float32)
    prop = np.zeros(n)
    for g in range(n):
        size = int(rng.integers(6, NODES + 1))
        kinds = rng.integers(0, KINDS, size)
        feats[g, np.arange(size), kinds] = 1
        mask[g, :size] = 1
        pairs = [(i, int(rng.integers(0, i))) for i in range(1, size)]
        pairs += [tuple(rng.choice(size, 2, replace=False)) for _ in range(rng.integers(0, 3))]
        for i, j in pairs:
            adj[g, i, j] = adj[g, j, i] = 1
        i, j = np.nonzero(np.triu(adj[g]))
        prop[g] = atom[kinds].sum() + bond[kinds[i], kinds[j]].sum() + 0.1 * rng.normal()
    return [torch.from_numpy(a) for a in (feats, adj, mask)] + [torch.tensor(prop, dtype=torch.float32)]


def build_mlp(sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return layers


class Conv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.message = nn.Sequential(*build_mlp([width, width]))
        self.update = nn.Sequential(*build_mlp([2 * width, width]))

    def forward(self, h, adj, mask):
        m = adj @ self.message(h)
        return (h + self.update(torch.cat([h, m], -1))) * mask.unsqueeze(-1)


class PropertyNet(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        self.embed = nn.Linear(KINDS, width, bias=False)
        self.convs = nn.ModuleList(Conv(width) for _ in range(depth))
        head = build_mlp([width, width, 1])
        self.readout = nn.Sequential(*(head[:-1] if MENDED else head))

    def forward(self, feats, adj, mask):
        h = self.embed(feats)
        for conv in self.convs:
            h = conv(h, adj, mask)
        return self.readout(h.sum(1) / 10).squeeze(-1)


@torch.no_grad()
def r2(model, data, mean, std):
    feats, adj, mask, y = data
    y = (y - mean) / std
    return (1 - ((model(feats, adj, mask) - y) ** 2).mean() / y.var()).item()


def main():
    torch.manual_seed(4)
    train, valid = make_graphs(1800, 1), make_graphs(400, 2)
    feats, adj, mask, y = train
    mean, std = y.mean(), y.std()
    target = (y - mean) / std
    model = PropertyNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(0)
    epochs, batch, step = 8, 36, 0
    for epoch in range(epochs):
        for idx in torch.randperm(len(y), generator=gen).split(batch):
            pred = model(feats[idx], adj[idx], mask[idx])
            loss = nn.functional.mse_loss(pred, target[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"step {step:4d} mse {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} held-out R2 {r2(model, valid, mean, std):.3f}")


if __name__ == "__main__":
    main()
