# expect: sick
# symptom: the graph classifier stays near chance level although each graph alone is easy to tell
# axis: data
# cause: the collate function concatenates the edge lists without adding each graph's node offset, so all edges of the batch point into the nodes of the first graph
# says: ((node|index|edge\w*|cumulative|batch)?.{0,40}offset|edge[ -_]?(ind\w*|list)?s?.{0,80}(offset|shift\w*|first graph|wrong (node|graph)s?|not (incremented|moved|re-?indexed|re-?numbered)|same nodes|collid\w*|other graph|local)|(not|without|never|no).{0,30}(re-?index\w*|re-?number\w*|re-?label\w*).{0,30}(node|edge)|collat\w*.{0,60}edge|nodes?.{0,60}(no|without|never|receive no).{0,20}(edge|neighbou?r|message)s?)
# onset_step: 1
# fix: add the running number of nodes to each graph's edge_index in the collate function
# mended: collate adds the running node offset to edge_index
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(17)
MENDED = os.environ.get("MENDED") == "1"
FEATURES = 6


def random_graph(rng):
    """Label 1: bonds prefer atoms of the same kind; label 0: of different kinds."""
    n = int(rng.integers(9, 17))
    kind = rng.integers(0, 2, n)
    label = int(rng.integers(0, 2))
    src, dst = [], []
    while len(src) < 4 * n:
        a, b = rng.integers(0, n, 2)
        if a == b:
            continue
        same = kind[a] == kind[b]
        if rng.random() < (0.85 if same == bool(label) else 0.15):
            src += [a, b]
            dst += [b, a]
    x = rng.normal(0, 0.4, (n, FEATURES)).astype(np.float32)
    x[np.arange(n), kind] += 1.0
    return {"x": torch.from_numpy(x), "edge_index": torch.tensor([src, dst]), "y": label}


def collate(graphs):
    xs, edges, batch, offset = [], [], [], 0
    for i, g in enumerate(graphs):
        xs.append(g["x"])
        edges.append(g["edge_index"] + offset)
        batch.append(torch.full((len(g["x"]),), i))
        if MENDED:
            offset += len(g["x"])
    y = torch.tensor([g["y"] for g in graphs])
    return torch.cat(xs), torch.cat(edges, dim=1), torch.cat(batch), y


class GINLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(2 * dim, dim), nn.ReLU(), nn.Linear(dim, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, edge_index):
        src, dst = edge_index
        agg = torch.zeros_like(x).index_add_(0, dst, x[src])
        deg = torch.zeros(len(x)).index_add_(0, dst, torch.ones(len(dst))).clamp(min=1)
        h = torch.cat([(1 + self.eps) * x, agg / deg[:, None]], -1)
        return self.norm(x + F.relu(self.mlp(h)))


class GraphClassifier(nn.Module):
    def __init__(self, dim=48, layers=3):
        super().__init__()
        self.inp = nn.Linear(FEATURES, dim)
        self.layers = nn.ModuleList(GINLayer(dim) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 2))

    def forward(self, x, edge_index, batch, num_graphs):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h, edge_index)
        pooled = torch.zeros(num_graphs, h.shape[1]).index_add_(0, batch, h)
        count = torch.bincount(batch, minlength=num_graphs).clamp(min=1)
        return self.head(pooled / count[:, None])


def run_epoch(model, loader, optimizer=None):
    loss_sum, good, total = 0.0, 0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for x, edge_index, batch, y in loader:
            logits = model(x, edge_index, batch, len(y))
            loss = F.cross_entropy(logits, y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss_sum += loss.item() * len(y)
            good += (logits.argmax(1) == y).sum().item()
            total += len(y)
    return loss_sum / total, good / total


def main():
    rng = np.random.default_rng(4)
    train = [random_graph(rng) for _ in range(1280)]
    test = [random_graph(rng) for _ in range(320)]
    train_loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(test, batch_size=32, collate_fn=collate)
    model = GraphClassifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(12):
        model.train()
        tr_loss, tr_acc = run_epoch(model, train_loader, optimizer)
        model.eval()
        te_loss, te_acc = run_epoch(model, test_loader)
        print(f"epoch {epoch:2d} train loss {tr_loss:.4f} acc {tr_acc:.3f} | test loss {te_loss:.4f} acc {te_acc:.3f}")


if __name__ == "__main__":
    main()
