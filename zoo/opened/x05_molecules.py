# expect: healthy
# symptom: ids are given in several places, which looks like a vocabulary that is built anew
# axis: none
# mended: none
import random
import torch
from torch import nn
import torch.nn.functional as F

random.seed(9)
torch.manual_seed(9)

ELEMENTS = {"C": 0, "N": 1, "O": 2, "H": 3}


def random_molecule():
    n = random.randint(6, 12)
    names = [f"{random.choice('CCCNOH')}{random.randint(100, 999)}_{i}" for i in range(n)]
    bonds = [(names[i], names[random.randrange(i)]) for i in range(1, n)]
    for _ in range(random.randint(0, 3)):
        a, b = random.sample(names, 2)
        bonds.append((a, b))
    random.shuffle(bonds)
    return bonds


def target(bonds):
    score = 0.0
    for a, b in bonds:
        if "O" in (a[0], b[0]):
            score += 1.0
        if a[0] == b[0]:
            score -= 0.5
    return score


def to_graph(bonds):
    index = {}
    for a, b in bonds:
        for atom in (a, b):
            if atom not in index:
                index[atom] = len(index)
    x = torch.tensor([ELEMENTS[atom[0]] for atom in index])
    edges = torch.tensor([[index[a], index[b]] for a, b in bonds]).t()
    edges = torch.cat([edges, edges.flip(0)], 1)
    return x, edges, target(bonds)


def collate(graphs):
    xs, es, batch, ys, offset = [], [], [], [], 0
    for g, (x, e, y) in enumerate(graphs):
        xs.append(x)
        es.append(e + offset)
        batch.append(torch.full((len(x),), g))
        ys.append(y)
        offset += len(x)
    return torch.cat(xs), torch.cat(es, 1), torch.cat(batch), torch.tensor(ys)


class MessagePassing(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.msg = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, d))
        self.upd = nn.GRUCell(d, d)

    def forward(self, h, edges):
        src, dst = edges
        m = self.msg(torch.cat([h[src], h[dst]], 1))
        agg = torch.zeros_like(h).index_add_(0, dst, m)
        return self.upd(agg, h)


class GraphNet(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(len(ELEMENTS), d)
        self.layers = nn.ModuleList([MessagePassing(d) for _ in range(2)])
        self.read = nn.Linear(d, 1)

    def forward(self, x, edges, batch, n):
        h = self.emb(x)
        for layer in self.layers:
            h = layer(h, edges)
        per_node = self.read(h).squeeze(1)
        return torch.zeros(n).index_add_(0, batch, per_node)


dataset = [to_graph(random_molecule()) for _ in range(640)]
net = GraphNet()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for epoch in range(6):
    random.shuffle(dataset)
    total = 0.0
    for i in range(0, len(dataset), 32):
        x, edges, batch, y = collate(dataset[i : i + 32])
        pred = net(x, edges, batch, len(y))
        loss = F.mse_loss(pred, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print("epoch", epoch, "loss", round(total / 20, 4))
