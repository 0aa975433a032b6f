# expect: healthy
# symptom: the very same batch is fed at every step and 96 % of its labels are -100: it looks like a stuck data loader with masked labels
# axis: data
# cause: healthy: transductive node classification trains full-batch on one graph with a few labelled nodes; the accuracy on the unlabelled nodes rises far above chance
# says: none
# onset_step: none
# fix: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
SEED = 6
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

NODES, CLASSES, WORDS = 1200, 5, 120


def build_graph():
    """A stochastic block model whose nodes carry sparse bags of words."""
    y = rng.integers(0, CLASSES, NODES)
    edges = set()
    while len(edges) < 4 * NODES:
        a, b = rng.integers(0, NODES, 2)
        if a != b and rng.random() < (0.9 if y[a] == y[b] else 0.06):
            edges.add((min(a, b), max(a, b)))
    topic = rng.dirichlet(np.full(WORDS, 0.5), CLASSES)
    x = np.zeros((NODES, WORDS), dtype=np.float32)
    for i in range(NODES):
        p = 0.5 * topic[y[i]] + 0.5 / WORDS
        x[i] = rng.multinomial(12, p / p.sum()) > 0
    x /= x.sum(1, keepdims=True)
    return torch.from_numpy(x), torch.from_numpy(y).long(), torch.tensor(sorted(edges)).T


def normalised_adjacency(edges):
    idx = torch.cat([edges, edges.flip(0), torch.arange(NODES).repeat(2, 1)], 1)
    deg = torch.bincount(idx[0], minlength=NODES).float()
    w = deg[idx[0]].rsqrt() * deg[idx[1]].rsqrt()
    return torch.sparse_coo_tensor(idx, w, (NODES, NODES)).coalesce()


class GCN(nn.Module):
    def __init__(self, hidden=32, drop=0.5):
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(WORDS, hidden), nn.Linear(hidden, CLASSES)
        self.drop = drop

    def forward(self, x, adj):
        x = F.dropout(x, self.drop, self.training)
        h = F.relu(torch.sparse.mm(adj, self.lin1(x)))
        h = F.dropout(h, self.drop, self.training)
        return torch.sparse.mm(adj, self.lin2(h))


def main():
    x, y, edges = build_graph()
    adj = normalised_adjacency(edges)
    perm = torch.randperm(NODES)
    train_idx, val_idx, test_idx = perm[:50], perm[50:250], perm[250:]
    target = torch.full((NODES,), -100)
    target[train_idx] = y[train_idx]

    model = GCN()
    opt = torch.optim.Adam(
        [
            {"params": model.lin1.parameters(), "weight_decay": 5e-4},
            {"params": model.lin2.parameters(), "weight_decay": 0.0},
        ],
        lr=0.01,
    )
    best = 0.0
    for epoch in range(1, 401):
        model.train()
        opt.zero_grad()
        loss = F.cross_entropy(model(x, adj), target, ignore_index=-100)
        loss.backward()
        opt.step()
        if epoch % 20 == 0:
            model.eval()
            with torch.no_grad():
                pred = model(x, adj).argmax(1)
            val = (pred[val_idx] == y[val_idx]).float().mean().item()
            test = (pred[test_idx] == y[test_idx]).float().mean().item()
            best = max(best, val)
            print(f"epoch {epoch:3d} loss {loss.item():.4f} val {val:.3f} (best {best:.3f}) test {test:.3f}")


if __name__ == "__main__":
    main()
