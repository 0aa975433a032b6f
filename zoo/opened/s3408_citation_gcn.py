# expect: sick
# symptom: learning stalls early: the loss stays high and almost constant, the accuracy ends lower than it can be
# axis: schedule
# cause: ReduceLROnPlateau is fed the accuracy but has the default mode min, so improvement counts as a plateau
# says: mode.{0,30}(min|max)|OnPlateau|(learning.rate|\blr\b).{0,60}(cut|reduc|decay|decreas|shr[aiu]nk)
# onset_step: 24
# fix: mode="max" for ReduceLROnPlateau
# mended: the script applies that change if the environment has MENDED=1
"""Two-layer graph convolution for the field of a paper in a citation graph."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)


def citation_graph(n=900, fields=7, words=200, seed=4):
    g = np.random.default_rng(seed)
    y = g.integers(0, fields, n)
    same = y[:, None] == y[None, :]
    adj = (g.random((n, n)) < np.where(same, 0.022, 0.0025)).astype(np.float32)
    adj = np.triu(adj, 1)
    adj = adj + adj.T + np.eye(n, dtype=np.float32)
    topic = g.dirichlet(np.full(words, 0.25), size=fields) * 0.5 + 0.5 / words
    x = np.stack([g.multinomial(18, topic[k]) for k in y]).astype(np.float32)
    x = x / x.sum(1, keepdims=True) * 5
    deg = adj.sum(1)
    norm = adj / np.sqrt(deg[:, None] * deg[None, :])
    order = g.permutation(n)
    split = {"train": order[:360], "val": order[360:600], "test": order[600:]}
    return (
        torch.from_numpy(norm),
        torch.from_numpy(x),
        torch.from_numpy(y),
        {k: torch.from_numpy(v) for k, v in split.items()},
    )


class GCN(nn.Module):
    def __init__(self, n_in, hidden, n_out, p=0.4):
        super().__init__()
        self.w1 = nn.Linear(n_in, hidden)
        self.w2 = nn.Linear(hidden, n_out)
        self.p = p

    def forward(self, adj, x):
        h = F.relu(adj @ self.w1(F.dropout(x, self.p, self.training)))
        return adj @ self.w2(F.dropout(h, self.p, self.training))


@torch.no_grad()
def accuracy(model, adj, x, y, idx):
    model.eval()
    acc = (model(adj, x)[idx].argmax(1) == y[idx]).float().mean().item()
    model.train()
    return acc


def main():
    adj, x, y, split = citation_graph()
    model = GCN(x.shape[1], 32, int(y.max()) + 1)
    opt = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(
        opt, factor=0.3, patience=3, **({"mode": "max"} if MENDED else {})
    )
    best = 0.0
    for step in range(300):
        loss = F.cross_entropy(model(adj, x)[split["train"]], y[split["train"]])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 4:
            val_acc = accuracy(model, adj, x, y, split["val"])
            best = max(best, val_acc)
            sched.step(val_acc)
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} best val {best:.3f}")
    test = accuracy(model, adj, x, y, split["test"])
    print(f"final loss {loss.item():.4f} val {best:.3f} test {test:.3f}")


if __name__ == "__main__":
    main()
