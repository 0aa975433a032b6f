# expect: healthy
# symptom: a ReLU network is differentiated with respect to its input and the loss is on that derivative (forces), which looks like the vanishing second derivative of a ReLU network
# axis: none
# mended: none
"""Energy model of a four-atom cluster fitted to energies and forces."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(0)
N_ATOMS = 4
PAIRS = torch.combinations(torch.arange(N_ATOMS), 2)


def morse_energy(pos):
    d = (pos[:, PAIRS[:, 0]] - pos[:, PAIRS[:, 1]]).norm(dim=-1)
    return ((1 - torch.exp(-1.2 * (d - 1.4))) ** 2).sum(1)


def make_data(n, seed):
    g = torch.Generator().manual_seed(seed)
    base = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) * 0.5
    pos = (base + 0.18 * torch.randn(n, N_ATOMS, 3, generator=g)).requires_grad_(True)
    e = morse_energy(pos)
    f = -torch.autograd.grad(e.sum(), pos)[0]
    return pos.detach(), e.detach(), f


class PairEnergy(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1)
        )

    def forward(self, pos):
        d = (pos[:, PAIRS[:, 0]] - pos[:, PAIRS[:, 1]]).norm(dim=-1, keepdim=True)
        return self.net(d - 1.4).sum(dim=(1, 2))

    def energy_and_forces(self, pos):
        pos = pos.requires_grad_(True)
        e = self(pos)
        f = -torch.autograd.grad(e.sum(), pos, create_graph=self.training)[0]
        return e, f


def main():
    pos, e, f = make_data(2000, 1)
    vpos, ve, vf = make_data(400, 2)
    model = PairEnergy()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.994)
    scale = f.pow(2).mean()
    for step in range(400):
        idx = torch.randint(0, len(pos), (64,))
        pe, pf = model.energy_and_forces(pos[idx].clone())
        loss_f = (pf - f[idx]).pow(2).mean() / scale
        loss_e = (pe - e[idx]).pow(2).mean()
        loss = loss_f + 0.1 * loss_e
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 40 == 0 or step == 399:
            model.eval()
            _, pv = model.energy_and_forces(vpos.clone())
            model.train()
            mae = (pv - vf).abs().mean().item()
            print(
                f"step {step:3d} loss {loss.item():.4f} force {loss_f.item():.4f} energy {loss_e.item():.4f} val force MAE {mae:.4f}"
            )


if __name__ == "__main__":
    main()
