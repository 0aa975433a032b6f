# expect: sick
# symptom: the node classifier's loss comes down a little and stalls, the train accuracy stays poor however long it trains
# axis: model
# cause: the graph convolutions sit in a plain Python list, so they are not registered as submodules, model.parameters() leaves them out and the optimizer never moves them
# says: (python |plain |bare |ordinary |regular |normal )list|module.?list|not (been )?registered|unregistered|(conv\w*|layer|submodule|message|parameter|weight|module|tensor)s?[^.]{0,70}(not (in|part of|given to|passed to|known to|held by|among|handed to|covered by)|missing (from|in)|outside|absent|left out|never (given|passed|handed|reach|added))[^.]{0,50}(optimi[sz]er|param)|optimi[sz]er[^.]{0,50}(lack|miss|does(n't| not) (have|hold|contain|know|include|cover|own)|without|leaves out|omits)|param\w*_not_in_opt|not_in_optimi[sz]er|unregistered_
# onset_step: 1
# fix: hold the convolutions in nn.ModuleList
# mended: with MENDED=1 self.convs is wrapped in nn.ModuleList
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(7)
rng = np.random.default_rng(7)


def citation_graph(n=900, classes=5, feats=48, degree=6):
    """Papers cite mostly their own subfield; a paper's own words tell little, its two-hop neighbourhood tells much."""
    y = rng.integers(0, classes, n)
    topics = (rng.random((classes, feats)) < 0.2).astype(np.float32)
    x = rng.normal(0, 1.0, (n, feats)).astype(np.float32) + 0.7 * topics[y] * rng.choice([-1, 1], (n, 1)).astype(
        np.float32
    )
    src, dst = [], []
    for i in range(n):
        for _ in range(degree):
            pool = np.flatnonzero(y == y[i]) if rng.random() < 0.85 else np.arange(n)
            j = rng.choice(pool)
            src += [i, j]
            dst += [j, i]
    edges = torch.tensor([src, dst])
    loops = torch.arange(n).repeat(2, 1)
    edges = torch.cat([edges, loops], 1)
    deg = torch.bincount(edges[1], minlength=n).float()
    w = (deg[edges[0]] * deg[edges[1]]).rsqrt()
    adj = torch.sparse_coo_tensor(edges.flip(0), w, (n, n)).coalesce()
    return torch.from_numpy(x), torch.from_numpy(y).long(), adj


class GraphConv(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.lin = nn.Linear(cin, cout)

    def forward(self, x, adj):
        return torch.sparse.mm(adj, self.lin(x))


class GCN(nn.Module):
    def __init__(self, cin, hidden, classes, layers=3, dropout=0.2):
        super().__init__()
        dims = [cin] + [hidden] * layers
        self.convs = [GraphConv(a, b) for a, b in zip(dims[:-1], dims[1:])]
        if os.environ.get("MENDED") == "1":
            self.convs = nn.ModuleList(self.convs)
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, classes)
        self.dropout = dropout

    def forward(self, x, adj):
        x = x.abs()
        for conv in self.convs:
            x = F.relu(conv(x, adj))
            x = F.dropout(x, self.dropout, self.training)
        return self.head(self.norm(x))


def main():
    x, y, adj = citation_graph()
    order = torch.randperm(len(y))
    train_idx, val_idx = order[:500], order[500:]
    model = GCN(x.shape[1], 16, int(y.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)

    best = 0.0
    for epoch in range(1, 501):
        model.train()
        optimizer.zero_grad()
        out = model(x, adj)
        loss = F.cross_entropy(out[train_idx], y[train_idx])
        loss.backward()
        optimizer.step()
        if epoch % 25 == 0 or epoch == 1:
            model.eval()
            with torch.no_grad():
                pred = model(x, adj).argmax(1)
            tr = (pred[train_idx] == y[train_idx]).float().mean().item()
            va = (pred[val_idx] == y[val_idx]).float().mean().item()
            best = max(best, va)
            print(f"epoch {epoch:3d} loss {loss.item():.4f} train {tr:.3f} val {va:.3f} best {best:.3f}")


if __name__ == "__main__":
    main()
