# expect: healthy
# symptom: the loss is rough and accuracy dips after each warm restart of the lr; resembles a too high lr
# axis: schedule
"""Node classification on a generated citation graph; GCN with SGDR restarts, few labels."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


def citation_graph(n=600, k=5, seed=0, p_in=0.03, p_out=0.004, words=80):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    same = y[:, None] == y[None, :]
    upper = np.triu(rng.random((n, n)) < np.where(same, p_in, p_out), 1)
    adj = (upper | upper.T).astype(np.float32)
    topic = rng.random((k, words)) < 0.15
    prob = np.where(topic[y], 0.22, 0.08)
    x = (rng.random((n, words)) < prob).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(adj), torch.from_numpy(y)


def normalise(adj):
    a = adj + torch.eye(adj.size(0))
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None, :]


class GCN(nn.Module):
    def __init__(self, n_in, n_cls, hidden=32, drop=0.3):
        super().__init__()
        self.w1, self.w2 = nn.Linear(n_in, hidden), nn.Linear(hidden, n_cls)
        self.drop = drop

    def forward(self, x, a):
        x = F.dropout(x, self.drop, self.training)
        h = F.relu(a @ self.w1(x))
        h = F.dropout(h, self.drop, self.training)
        return a @ self.w2(h)


def split(y, per_class, gen):
    train = torch.zeros_like(y, dtype=torch.bool)
    for c in y.unique():
        members = (y == c).nonzero().flatten()
        train[members[torch.randperm(len(members), generator=gen)[:per_class]]] = True
    return train, ~train


def main():
    torch.manual_seed(4)
    x, adj, y = citation_graph()
    a = normalise(adj)
    train, test = split(y, 40, torch.Generator().manual_seed(1))
    model = GCN(x.size(1), int(y.max()) + 1)
    opt = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=50, T_mult=2, eta_min=1e-3)
    for step in range(350):
        model.train()
        loss = F.cross_entropy(model(x, a)[train], y[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            model.eval()
            with torch.no_grad():
                acc = (model(x, a).argmax(1) == y)[test].float().mean().item()
            print(f"step {step:4d} lr {sched.get_last_lr()[0]:.3f} loss {loss.item():.4f} test acc {acc:.3f}")
    model.eval()
    with torch.no_grad():
        acc = (model(x, a).argmax(1) == y)[test].float().mean().item()
    print(f"final test acc {acc:.3f}")


if __name__ == "__main__":
    main()
