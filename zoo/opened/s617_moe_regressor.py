# expect: sick
# symptom: the mixture-of-experts model trains and its loss falls, but it ends no better than a far smaller dense network
# axis: model
# cause: the experts are kept in a plain Python list, so their weights are not registered as parameters and never reach the optimizer
# says: (plain|python|ordinary|regular).{0,20}list|module.?list|(expert\w*|ffn|sub-?modules?|weights|parameters?).{0,120}(not registered|un-?registered|never registered|missing from (the )?(optimi[sz]er|model\.parameters|parameters)|not (in|passed to|part of|among) (the )?(optimi[sz]er|model\.parameters|parameters|model'?s)|never (trained|updated|reach|move|change)|not (trained|updated|being (trained|updated))|frozen|do(es)? not (move|train|change)|stay(s|ed)? at (their |its )?init)|(optimi[sz]er).{0,80}(lacks|misses|missing|does not (hold|have|contain|include|know|see)|without).{0,60}(expert|param|weight)
# onset_step: 1
# fix: hold the experts in an nn.ModuleList
# mended: with MENDED=1 the list of experts is wrapped in nn.ModuleList
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


def make_plant(seed):
    """Eight operating regimes; in each one the sensors map to the target by another curve."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(0, 2.0, (8, 12))
    w1 = rng.normal(0, 0.8, (8, 12, 6))
    w2 = rng.normal(0, 0.7, (8, 6))
    return centers, w1, w2


def sample(plant, n, rng):
    centers, w1, w2 = plant
    k = rng.integers(0, 8, n)
    d = rng.normal(0, 0.8, (n, 12))
    x = centers[k] + d
    hid = np.tanh(np.einsum("ni,nij->nj", d, w1[k]))
    y = np.einsum("nj,nj->n", hid, w2[k]) + 0.05 * rng.normal(size=n)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class Expert(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, hidden), nn.Linear(hidden, d)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class MoELayer(nn.Module):
    def __init__(self, d, hidden, n_experts=8, top_k=2):
        super().__init__()
        self.n_experts, self.top_k = n_experts, top_k
        self.norm = nn.LayerNorm(d)
        self.router = nn.Linear(d, n_experts)
        experts = [Expert(d, hidden) for _ in range(n_experts)]
        self.experts = nn.ModuleList(experts) if MENDED else experts

    def forward(self, x):
        h = self.norm(x)
        probs = self.router(h).softmax(-1)
        gate, idx = probs.topk(self.top_k, dim=-1)
        gate = gate / gate.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e in range(self.n_experts):
            row, slot = (idx == e).nonzero(as_tuple=True)
            if row.numel():
                out = out.index_add(0, row, gate[row, slot, None] * self.experts[e](h[row]))
        load = F.one_hot(idx, self.n_experts).float().sum(1).mean(0) / self.top_k
        balance = self.n_experts * (load * probs.mean(0)).sum()
        return x + out, balance


class MoERegressor(nn.Module):
    def __init__(self, d=24, hidden=64, layers=2):
        super().__init__()
        self.inp = nn.Linear(12, d)
        self.layers = nn.ModuleList(MoELayer(d, hidden) for _ in range(layers))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        h, aux = self.inp(x), 0.0
        for layer in self.layers:
            h, b = layer(h)
            aux = aux + b
        return self.out(h).squeeze(-1), aux / len(self.layers)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=700)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--aux", type=float, default=0.01)
    a = p.parse_args()
    torch.manual_seed(0)
    plant, rng = make_plant(4), np.random.default_rng(8)
    xv, yv = sample(plant, 2000, np.random.default_rng(99))
    model = MoERegressor()
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, a.lr, total_steps=a.steps, pct_start=0.1)
    for step in range(1, a.steps + 1):
        x, y = sample(plant, a.batch, rng)
        pred, aux = model(x)
        loss = F.mse_loss(pred, y) + a.aux * aux
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0:
            with torch.no_grad():
                pv, _ = model(xv)
                r2 = 1 - F.mse_loss(pv, yv) / yv.var()
            print(f"step {step} loss {loss.item():.4f} balance {aux.item():.3f} val_r2 {r2.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
