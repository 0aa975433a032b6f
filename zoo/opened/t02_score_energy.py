# expect: sick
# symptom: the score-matching loss never gets below zero: it shrinks to about 0 and stays there, and the learned score is zero (relative error about 1)
# axis: model
# cause: the energy network is piecewise linear (leaky ReLU written as torch.maximum), so the trace of its Hessian in the score-matching objective is identically zero and only the squared gradient is left, which pulls the score to zero
# says: (relu|maximum|piecewise.?linear|activation|non.?smooth|not (twice|smooth)|second.{0,12}(derivative|order)|laplacian|hessian|trace|curvature|divergence).{0,160}(zero|vanish|smooth|tanh|sin|silu|gelu|softplus|swish|twice)
# onset_step: 0
# fix: a smooth activation (softplus, SiLU, tanh) in the energy network
# mended: F.softplus instead of torch.maximum(h, 0.1 h)
"""Score matching (Hyvarinen) of an energy model on a planar mixture of Gaussians."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

CENTERS = torch.tensor([[1.5, 0.0], [-1.0, 1.2], [-0.8, -1.4]])
SIGMA = 0.55


def sample(n, gen):
    k = torch.randint(0, 3, (n,), generator=gen)
    return CENTERS[k] + SIGMA * torch.randn(n, 2, generator=gen)


def true_score(x):
    d = CENTERS[None] - x[:, None]
    w = torch.softmax(-(d**2).sum(-1) / (2 * SIGMA**2), dim=1)
    return (w[..., None] * d).sum(1) / SIGMA**2


class LogDensity(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.inp = nn.Linear(2, hidden)
        self.mid = nn.ModuleList([nn.Linear(hidden, hidden) for _ in range(2)])
        self.out = nn.Linear(hidden, 1)

    def squash(self, h):
        if MENDED:
            return F.softplus(h)
        return torch.maximum(h, 0.1 * h)

    def forward(self, x):
        h = self.squash(self.inp(x))
        for layer in self.mid:
            h = h + self.squash(layer(h))
        return self.out(h).squeeze(-1)


class ScoreMatcher:
    def __init__(self, model, lr=2e-3):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4)

    def fields(self, x):
        params = dict(self.model.named_parameters())

        def logp(z):
            return functional_call(self.model, params, (z,))

        s = vmap(grad(logp))(x)
        j = vmap(jacrev(grad(logp)))(x)
        return s, j.diagonal(dim1=-2, dim2=-1).sum(-1)

    def step(self, x):
        s, tr = self.fields(x)
        loss = (tr + 0.5 * s.pow(2).sum(-1)).mean()
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.opt.step()
        return loss.item()

    def score_error(self, x):
        s, _ = self.fields(x)
        t = true_score(x)
        return ((s - t).norm() / t.norm()).item()


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(17)
    matcher = ScoreMatcher(LogDensity())
    held_out = sample(512, gen)
    recent = []
    for it in range(1, 401):
        recent.append(matcher.step(sample(256, gen)))
        if it == 1 or it % 40 == 0:
            print(
                f"iter {it:4d} | loss {sum(recent) / len(recent):+.4f} | score err {matcher.score_error(held_out):.3f}"
            )
            recent = []


if __name__ == "__main__":
    main()
