# expect: sick
# symptom: training loss falls, but the graph classifier stays far below what the same network reaches graph by graph
# axis: data
# cause: the collate function concatenates the edge lists without adding each graph's node offset, so all edges of a batch point into the nodes of its first graphs
# says: (offset|(edge|adjacenc|indices|index|batch|collat).{0,120}(not (shifted|offset|incremented|re-?indexed|re-?numbered)|un-?shifted|without (an? |the |any )?(shift|offset|increment|re-?index)|wrong (graph|node)|first graph|other graph|local ind|same nodes?|point(s|ing)? (in)?to the (wrong|first)|collide|overlap)|first graphs?.{0,80}edge|most nodes.{0,60}(no edges?|isolated))
# onset_step: 1
# fix: add the running node count to each graph's edge_index when collating
# mended: with MENDED=1 collate adds the node offset to edge_index
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(7)
MENDED = os.environ.get("MENDED") == "1"
N_TYPES = 4


class MoleculeLike(Dataset):
    """Random graphs with typed atoms. Active (1) if like atoms tend to bind to like atoms."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = [self.build(rng) for _ in range(n)]

    def build(self, rng):
        y = int(rng.random() < 0.5)
        n = int(rng.integers(10, 22))
        probs = np.array([0.28, 0.24, 0.24, 0.24]) if y else np.array([0.24, 0.24, 0.24, 0.28])
        kind = rng.choice(N_TYPES, n, p=probs)
        src, dst = [], []
        target_edges = int(n * 1.6)
        while len(src) < 2 * target_edges:
            a, b = rng.integers(0, n, 2)
            if a == b:
                continue
            like = kind[a] == kind[b]
            keep = (0.9 if like else 0.3) if y else (0.2 if like else 0.6)
            if rng.random() < keep:
                src += [a, b]
                dst += [b, a]
        x = np.eye(N_TYPES, dtype=np.float32)[kind]
        return torch.from_numpy(x), torch.tensor([src, dst]), y

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(graphs):
    xs, edges, batch, ys = [], [], [], []
    start = 0
    for g, (x, edge_index, y) in enumerate(graphs):
        xs.append(x)
        edges.append(edge_index + start if MENDED else edge_index)
        batch.append(torch.full((x.size(0),), g))
        ys.append(y)
        start += x.size(0)
    return torch.cat(xs), torch.cat(edges, dim=1), torch.cat(batch), torch.tensor(ys)


class SageLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.own, self.nbr, self.norm = nn.Linear(d, d), nn.Linear(d, d, bias=False), nn.LayerNorm(d)

    def forward(self, h, edge_index):
        src, dst = edge_index
        agg = torch.zeros_like(h).index_add_(0, dst, h[src])
        deg = torch.zeros(h.size(0)).index_add_(0, dst, torch.ones(dst.numel())).clamp(min=1)
        return h + F.relu(self.norm(self.own(h) + self.nbr(agg / deg[:, None])))


class GraphNet(nn.Module):
    def __init__(self, d=48, layers=2):
        super().__init__()
        self.embed = nn.Linear(N_TYPES, d)
        self.layers = nn.ModuleList(SageLayer(d) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 2))

    def forward(self, x, edge_index, batch):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, edge_index)
        n = int(batch.max()) + 1
        pooled = torch.zeros(n, h.size(1)).index_add_(0, batch, h)
        count = torch.bincount(batch, minlength=n).float()
        return self.head(pooled / count[:, None])


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = total = 0
    for x, e, b, y in loader:
        hit += (model(x, e, b).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return hit / total


def main():
    train = DataLoader(MoleculeLike(1200, 0), batch_size=32, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(MoleculeLike(400, 1), batch_size=32, collate_fn=collate)
    model = GraphNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
    step = 0
    for epoch in range(14):
        for x, e, b, y in train:
            loss = F.cross_entropy(model(x, e, b), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        if epoch % 2 == 1:
            print(f"epoch {epoch} test accuracy {accuracy(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()
