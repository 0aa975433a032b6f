# expect: healthy
# fault: none, create_graph follows the module's training flag, so the force loss has a gradient in training and the evaluation passes save the work
# onset_step: none
# says: (?!)
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(31)
ATOMS = 5


def truth(pos):
    diff = pos[:, :, None] - pos[:, None]
    iu = torch.triu_indices(ATOMS, ATOMS, 1)
    r = diff[:, iu[0], iu[1]].norm(dim=-1)
    return ((1 - torch.exp(-(r - 1.2))) ** 2).sum(dim=1)


def configurations(n):
    ring = torch.arange(ATOMS).float() * 2 * torch.pi / ATOMS
    base = torch.stack([ring.cos(), ring.sin(), torch.zeros(ATOMS)], dim=1) * 1.3
    pos = (base + 0.15 * torch.randn(n, ATOMS, 3)).requires_grad_(True)
    energy = truth(pos)
    force = -torch.autograd.grad(energy.sum(), pos)[0]
    return pos.detach(), energy.detach(), force


class Potential(nn.Module):
    def __init__(self, rbf=16, hidden=48):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.4, 3.6, rbf))
        self.pair = nn.Sequential(nn.Linear(rbf, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU())
        self.readout = nn.Linear(hidden, 1)
        self.register_buffer("pairs", torch.triu_indices(ATOMS, ATOMS, 1))

    def energy(self, pos):
        i, j = self.pairs
        r = (pos[:, i] - pos[:, j]).norm(dim=-1, keepdim=True)
        feat = torch.exp(-((r - self.centres) ** 2) * 6)
        return self.readout(self.pair(feat)).sum(dim=(1, 2))

    def forward(self, pos):
        pos = pos.detach().requires_grad_(True)
        e = self.energy(pos)
        g = torch.autograd.grad(e.sum(), pos, create_graph=self.training, retain_graph=True)[0]
        return e, -g


pos, energy, force = configurations(1500)
shift = energy[:1200].mean()
model = Potential()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)

for step in range(1, 301):
    model.train()
    pick = torch.randint(0, 1200, (64,))
    e, f = model(pos[pick])
    loss_e = (e - (energy[pick] - shift)).square().mean()
    loss_f = (f - force[pick]).square().mean()
    loss = 0.2 * loss_e + loss_f
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 50 == 0:
        model.eval()
        e, f = model(pos[1200:])
        mae = (f.detach() - force[1200:]).abs().mean().item()
        print(f"step {step} energy {loss_e.item():.4f} force {loss_f.item():.4f} held-out force mae {mae:.4f}")
