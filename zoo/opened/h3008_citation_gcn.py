# expect: healthy
# symptom: most parameters have no gradient (a frozen random projection), 40 labels; resembles a dead layer
# axis: model
"""Semi-supervised node classification with a graph network on a fixed random projection."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
NODES, CLASSES, FEATS, STEPS = 600, 5, 200, 200


def make_graph(gen):
    """Planted partition with weak bag-of-words features."""
    y = torch.arange(NODES) % CLASSES
    same = y[:, None] == y[None]
    prob = torch.where(same, 0.05, 0.003)
    adj = (torch.rand(NODES, NODES, generator=gen) < prob).float().triu(1)
    adj = adj + adj.t()
    topic = (torch.rand(CLASSES, FEATS, generator=gen) < 0.15).float()
    rate = 0.03 + 0.10 * topic[y]
    x = (torch.rand(NODES, FEATS, generator=gen) < rate).float()
    return x, adj, y


def normalised(adj):
    a = adj + torch.eye(len(adj))
    d = a.sum(1).rsqrt()
    return (d[:, None] * a * d[None]).to_sparse()


class PropLayer(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.lin = nn.Linear(a, b)

    def forward(self, adj, x):
        return torch.sparse.mm(adj, self.lin(x))


class CitationNet(nn.Module):
    """The wide projection is a random feature map, only what follows it is trained."""

    def __init__(self, wide=512, hid=32):
        super().__init__()
        self.project = nn.Linear(FEATS, wide)
        nn.init.normal_(self.project.weight, std=FEATS**-0.5)
        for p in self.project.parameters():
            p.requires_grad_(False)
        self.norm = nn.LayerNorm(wide)
        self.g1, self.g2 = PropLayer(wide, hid), PropLayer(hid, CLASSES)

    def forward(self, adj, x):
        h = self.norm(F.relu(self.project(x)))
        h = F.dropout(h, 0.5, self.training)
        h = F.relu(self.g1(adj, h))
        h = F.dropout(h, 0.5, self.training)
        return self.g2(adj, h)


def split(y, gen, per_class=8):
    train = torch.cat(
        [torch.where(y == c)[0][torch.randperm(int((y == c).sum()), generator=gen)[:per_class]] for c in range(CLASSES)]
    )
    rest = torch.ones(len(y), dtype=torch.bool)
    rest[train] = False
    rest = torch.where(rest)[0]
    rest = rest[torch.randperm(len(rest), generator=gen)]
    return train, rest[:200], rest[200:]


def main():
    torch.manual_seed(31)
    gen = torch.Generator().manual_seed(31)
    x, adj, y = make_graph(gen)
    adj = normalised(adj)
    train, val, test = split(y, gen)
    model = CitationNet()
    trained = [p for p in model.parameters() if p.requires_grad]
    print(f"trained parameters {sum(p.numel() for p in trained)} of {sum(p.numel() for p in model.parameters())}")
    opt = torch.optim.Adam(trained, lr=1e-2, weight_decay=5e-4)
    best, best_state = 0.0, None
    for step in range(1, STEPS + 1):
        model.train()
        loss = F.cross_entropy(model(adj, x)[train], y[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.eval()
        with torch.no_grad():
            out = model(adj, x)
        acc = (out[val].argmax(1) == y[val]).float().mean().item()
        if acc > best:
            best, best_state = acc, {k: v.clone() for k, v in model.state_dict().items()}
        if step % 20 == 0 or step == 1:
            print(f"step {step:4d} loss {loss.item():.4f} val accuracy {acc:.3f}")
    model.load_state_dict(best_state)
    with torch.no_grad():
        out = model(adj, x)
    print(f"best val {best:.3f} test accuracy {(out[test].argmax(1) == y[test]).float().mean().item():.3f}")


if __name__ == "__main__":
    main()
