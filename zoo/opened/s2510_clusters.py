# expect: sick
# symptom: energy and force errors fall nicely, then in a later phase everything becomes NaN in one step
# axis: model
# cause: the cutoff function evaluates exp of an overflowing term for pairs just outside the cutoff radius and torch.where only masks the forward value, so the derivative is zero times infinity, NaN in the forces
# says: (?=[\s\S]*(cut.?off|envelope|bump|switching|taper|torch\.where|\bwhere\b|smooth))(?=[\s\S]*(nan|inf|overflow|non.?finite|0 ?[*x] ?inf|unselected|discarded|untaken|masked.?out|both branches|divi\w+ by zero|singular|pole))(?=[\s\S]*(grad|deriv|backward|force|autograd|differentiat|branch))
# onset_step: 301
# fix: clamp the reduced distance below one before the exponential, so that the unselected branch stays finite
# mended: yes
"""Neural pair potential for atom clusters, fitted to energies and forces of a Morse solid."""

import itertools
import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)


@dataclass
class Config:
    atoms: int = 7
    cutoff: float = 4.5
    rbf: int = 20
    hidden: int = 64
    batch: int = 24
    steps: int = 520
    lr: float = 2e-3
    force_weight: float = 0.5
    mended: bool = os.environ.get("MENDED") == "1"


cfg = Config()
I, J = map(torch.tensor, zip(*itertools.combinations(range(cfg.atoms), 2)))


def pair_distance(pos):
    return (pos[:, I] - pos[:, J]).norm(dim=-1)


def reference(pos):
    """Morse energies with a shifted cut and the forces that belong to them."""
    pos = pos.clone().requires_grad_(True)
    r = pair_distance(pos)
    w = torch.exp(-1.2 * (r - 1.5))
    energy = (w * w - 2 * w).sum(1)
    force = -torch.autograd.grad(energy.sum(), pos)[0]
    return energy.detach(), force.detach()


def sample_clusters(n, box, rng):
    """Random compact clusters in a box, no two atoms closer than 1.1."""
    out = np.empty((n, cfg.atoms, 3))
    for k in range(n):
        placed = []
        while len(placed) < cfg.atoms:
            p = rng.uniform(0, box, 3)
            if all(np.sum((p - q) ** 2) > 1.1**2 for q in placed):
                placed.append(p)
        out[k] = placed
    return torch.tensor(out, dtype=torch.float32)


class PairPotential(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.register_buffer("mu", torch.linspace(0.8, c.cutoff, c.rbf))
        self.net = nn.Sequential(
            nn.Linear(c.rbf, c.hidden), nn.SiLU(), nn.Linear(c.hidden, c.hidden), nn.SiLU(), nn.Linear(c.hidden, 1)
        )

    def envelope(self, r):
        x = r / self.c.cutoff
        inside = x < 1.0
        if self.c.mended:
            x = x.clamp(max=0.995)
        bump = torch.exp(1.0 - 1.0 / (1.0 - x * x))
        return torch.where(inside, bump, torch.zeros_like(bump))

    def forward(self, pos):
        r = pair_distance(pos)
        feats = torch.exp(-6.0 * (r[..., None] - self.mu) ** 2)
        return (self.net(feats).squeeze(-1) * self.envelope(r)).sum(1)


def energy_and_force(model, pos, train):
    pos = pos.clone().requires_grad_(True)
    e = model(pos)
    f = -torch.autograd.grad(e.sum(), pos, create_graph=train)[0]
    return e, f


def box_edge(step):
    """Denser clusters first, then slowly more dilute ones."""
    return 2.45 + 1.1 * min(1.0, step / 420)


def main():
    torch.manual_seed(1)
    rng = np.random.default_rng(21)
    model = PairPotential(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps, eta_min=1e-4)
    for step in range(1, cfg.steps + 1):
        pos = sample_clusters(cfg.batch, box_edge(step), rng)
        e_ref, f_ref = reference(pos)
        e, f = energy_and_force(model, pos, train=True)
        loss_e = nn.functional.smooth_l1_loss(e, e_ref) / cfg.atoms
        loss_f = nn.functional.smooth_l1_loss(f, f_ref)
        loss = loss_e + cfg.force_weight * loss_f
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(
                f"{step:4d} box {box_edge(step):.2f} loss {loss.item():.4f} "
                f"energy {loss_e.item():.4f} force {loss_f.item():.4f}"
            )
    pos = sample_clusters(100, 3.4, rng)
    e_ref, f_ref = reference(pos)
    e, f = energy_and_force(model, pos, train=False)
    print(f"test: energy MAE {(e - e_ref).abs().mean().item():.4f}, force MAE {(f - f_ref).abs().mean().item():.4f}")


if __name__ == "__main__":
    main()
