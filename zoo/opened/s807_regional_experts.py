# expect: sick
# symptom: the mixture of experts learns only coarsely, its error stalls far above the expected level and the expert loads do not settle on the regions
# axis: model
# cause: the gate weights are renormalised over the selected experts, and with top_k=1 that weight is always exactly 1, so the router (and its trunk) gets no gradient beyond rounding noise and never learns
# says: (renormali[sz]|normali[sz]|softmax|norm_topk|divid).{0,80}(top.?k|top.?1|k ?= ?1|select|single|one)|(top.?k|top.?1|k ?= ?1|gate|weight).{0,60}(always|constant|identical|exactly|renormali|normali).{0,20}|(router|gate|gating|routing).{0,60}(no|zero|without|never|not|untrained|frozen).{0,20}(grad|learn|train|updat|mov|chang)|(no|zero|without).{0,20}grad.{0,40}(router|gate|gating|routing)
# onset_step: 1
# fix: do not renormalise the gate weights when one expert is selected (norm_topk_prob=False)
# mended: with MENDED=1 the config sets norm_topk_prob=False
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Config:
    features: int = 12
    trunk: int = 64
    experts: int = 8
    top_k: int = 1
    norm_topk_prob: bool = True
    lr: float = 5e-3
    steps: int = 800
    batch: int = 256


class SparseExperts(nn.Module):
    """Sparsely routed experts, each a small linear model on the raw features."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.trunk = nn.Sequential(
            nn.Linear(cfg.features, cfg.trunk), nn.ReLU(), nn.Linear(cfg.trunk, cfg.trunk), nn.ReLU()
        )
        self.router = nn.Linear(cfg.trunk, cfg.experts)
        self.weight = nn.Parameter(torch.randn(cfg.experts, cfg.features) * 0.1)
        self.bias = nn.Parameter(torch.zeros(cfg.experts))

    def forward(self, x):
        probs = self.router(self.trunk(x)).softmax(-1)
        gate, idx = probs.topk(self.cfg.top_k, dim=-1)
        if self.cfg.norm_topk_prob:
            gate = gate / gate.sum(-1, keepdim=True)
        expert_out = (x.unsqueeze(1) * self.weight[idx]).sum(-1) + self.bias[idx]
        return (gate * expert_out).sum(-1), idx


class EnergyDemand:
    """Demand depends linearly on the features, with other coefficients in each region."""

    def __init__(self, cfg, regions=6, seed=8):
        g = torch.Generator().manual_seed(seed)
        self.g, self.regions, self.cfg = g, regions, cfg
        self.centres = torch.randn(regions, cfg.features, generator=g) * 1.2
        self.coef = torch.randn(regions, cfg.features, generator=g)
        self.base = torch.randn(regions, generator=g) + 2.0
        x, y = self.raw(4000)
        self.stats = (x.mean(0), x.std(0), y.mean(), y.std())

    def raw(self, n):
        r = torch.randint(self.regions, (n,), generator=self.g)
        z = torch.randn(n, self.cfg.features, generator=self.g) * 0.7
        y = (z * self.coef[r]).sum(-1) + self.base[r] + 0.1 * torch.randn(n, generator=self.g)
        return self.centres[r] + z, y

    def draw(self, n):
        x, y = self.raw(n)
        xm, xs, ym, ys = self.stats
        return (x - xm) / xs, (y - ym) / ys


def report(step, model, x, y):
    with torch.no_grad():
        pred, idx = model(x)
        r2 = 1 - F.mse_loss(pred, y) / y.var()
        load = torch.bincount(idx[:, 0], minlength=model.cfg.experts).float() / len(x)
    print(f"step {step:4d} valid R2 {r2.item():.3f} load {' '.join(f'{v:.2f}' for v in load.tolist())}")


def main():
    torch.manual_seed(8)
    cfg = Config(norm_topk_prob=os.environ.get("MENDED") != "1")
    data = EnergyDemand(cfg)
    model = SparseExperts(cfg)
    valid = data.draw(2000)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    for step in range(1, cfg.steps + 1):
        x, y = data.draw(cfg.batch)
        pred, _ = model(x)
        loss = F.mse_loss(pred, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(f"step {step:4d} train mse {loss.item():.4f}")
            report(step, model, *valid)


if __name__ == "__main__":
    main()
