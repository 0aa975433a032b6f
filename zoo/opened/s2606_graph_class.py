# expect: sick
# symptom: training starts well, then freezes after a few epochs: loss and accuracy stop improving and the final accuracy is clearly below what the same net reaches
# axis: schedule
# cause: ReduceLROnPlateau is left in its default mode 'min' but is stepped with the validation accuracy, so every improvement counts as a bad epoch and the learning rate is cut again and again until learning stops
# says: (mode\s*=?\s*['\"(]?(min|max)\b|\b(min|max)\b['\"]?[- ]?mode|(higher|lower|larger|smaller|bigger) is (better|worse)|wrong direction|(plateau|scheduler).{0,120}(step\w*|fed|feed\w*|pass\w*|given|receiv\w*|monitor\w*|track\w*|watch\w*|sees|treat\w*|minimi\w*).{0,40}\b(val_?)?acc(uracy)?\b|\bacc(uracy)?\b.{0,60}(minimi[sz]|as (bad|worse|no improvement|if it should (fall|decrease)))|improv\w*.{0,60}(as|count\w*).{0,20}(bad|worse|no improvement|plateau))
# onset_step: 161
# fix: create the scheduler with mode='max' (or step it with the validation loss)
# mended: yes
"""Classify synthetic molecule-like graphs with a dense GIN."""

import os
import logging
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("gin")
N_NODES, N_TYPES = 14, 5


def random_graph(rng):
    """A random tree plus some ring-closing edges and node types; label from two structural motifs."""
    n = int(rng.integers(9, N_NODES + 1))
    a = np.zeros((N_NODES, N_NODES), dtype=np.float32)
    for v in range(1, n):
        u = int(rng.integers(max(0, v - 4), v))
        a[u, v] = a[v, u] = 1
    for _ in range(int(rng.integers(0, 5))):
        u, v = rng.choice(n, 2, replace=False)
        a[u, v] = a[v, u] = 1
    t = rng.integers(0, N_TYPES, N_NODES)
    t[n:] = -1
    return a, t, n


def motif_scores(a, t, n):
    hetero = sum(a[u, v] for u in range(n) for v in range(u) if {t[u], t[v]} == {0, 1})
    hubs = sum(1 for u in range(n) if a[u].sum() >= 3 and t[u] in (2, 3))
    return hetero, hubs


def build_dataset(count, seed):
    rng = np.random.default_rng(seed)
    adj, typ, lab = [], [], []
    for _ in range(count):
        a, t, n = random_graph(rng)
        het, hub = motif_scores(a, t, n)
        adj.append(a)
        typ.append(t)
        lab.append(2 * int(het >= 2) + int(hub >= 2))
    typ = torch.from_numpy(np.stack(typ))
    x = F.one_hot(typ.clamp(min=0), N_TYPES).float() * (typ >= 0).unsqueeze(-1)
    return torch.from_numpy(np.stack(adj)), x, torch.tensor(lab)


class GINLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d))
        self.norm = nn.LayerNorm(d)

    def forward(self, h, adj, mask):
        agg = (1 + self.eps) * h + adj @ h
        return torch.relu(h + self.mlp(self.norm(agg))) * mask


class GIN(nn.Module):
    def __init__(self, d=56, layers=3, classes=4):
        super().__init__()
        self.embed = nn.Linear(N_TYPES, d)
        self.layers = nn.ModuleList([GINLayer(d) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(d * (layers + 1), d), nn.ReLU(), nn.Linear(d, classes))

    def forward(self, adj, x):
        mask = (x.sum(-1, keepdim=True) > 0).float()
        h = self.embed(x) * mask
        pooled = [h.sum(1)]
        for layer in self.layers:
            h = layer(h, adj, mask)
            pooled.append(h.sum(1))
        return self.readout(torch.cat(pooled, -1) / 4.0)


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    adj, x, y = data
    logits = model(adj, x)
    model.train()
    return F.cross_entropy(logits, y).item(), (logits.argmax(-1) == y).float().mean().item()


def main():
    torch.manual_seed(17)
    train, valid = build_dataset(2560, 1), build_dataset(600, 2)
    log.info("class counts %s", torch.bincount(train[2]).tolist())
    model = GIN()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-4)
    extra = {"mode": "max"} if os.environ.get("MENDED") == "1" else {}
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=2, **extra)
    batch, step, best = 64, 0, 0.0
    for epoch in range(1, 22):
        order = torch.randperm(len(train[2]))
        seen = 0.0
        for idx in order.split(batch):
            adj, x, y = (t[idx] for t in train)
            loss = F.cross_entropy(model(adj, x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            seen += loss.item()
        val_loss, val_acc = evaluate(model, valid)
        best = max(best, val_acc)
        scheduler.step(val_acc)
        log.info(
            "epoch %2d step %4d train %.4f valid %.4f acc %.3f lr %.1e",
            epoch,
            step,
            seen / (len(train[2]) // batch),
            val_loss,
            val_acc,
            optimizer.param_groups[0]["lr"],
        )
    log.info("best accuracy %.3f", best)


if __name__ == "__main__":
    main()
