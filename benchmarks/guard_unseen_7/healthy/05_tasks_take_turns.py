# One body, two tasks that take turns of 30 steps: the kind of a molecule (cross entropy, about 1) and its energy (squared error in raw
# units, in the thousands at first). The printed loss and the gradient norm swing by orders of magnitude at each turn. Adam.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

STEPS, BATCH, TURN = 600, 128, 30
ATOMS, SPECIES, KINDS = 12, 6, 4
world = torch.Generator().manual_seed(8505)
own = 12 * torch.randn(SPECIES, generator=world)
pull = 8 * torch.randn(SPECIES, SPECIES, generator=world)
pull = (pull + pull.t()) / 2
family = torch.randn(SPECIES, KINDS, generator=world)


def molecules(count, generator=None):
    """Chains of atoms; energy from atoms and neighbours, kind from the composition."""
    atom = torch.randint(SPECIES, (count, ATOMS), generator=generator)
    energy = own[atom].sum(1) + pull[atom[:, :-1], atom[:, 1:]].sum(1)
    energy = energy + 6.0 * torch.randn(count, generator=generator)
    score = 2.5 * family[atom].mean(1) + 0.5 * torch.randn(count, KINDS, generator=generator)
    return atom, score.argmax(1), energy


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.atom = nn.Embedding(SPECIES, width)
        self.one = nn.Conv1d(width, width, 3, padding=1)
        self.two = nn.Conv1d(width, width, 3, padding=1)
        self.kind = nn.Linear(width, KINDS)
        self.energy = nn.Linear(width, 1)

    def forward(self, atom):
        x = self.atom(atom).transpose(1, 2)
        x = x + F.silu(self.one(x))
        x = (x + F.silu(self.two(x))).mean(2)
        return self.kind(x), 100 * self.energy(x).squeeze(1)


def losses_of(model, atom, kind, energy):
    told, guess = model(atom)
    return F.cross_entropy(told, kind), F.mse_loss(guess, energy)


held_out = molecules(4000, world)
torch.manual_seed(args.seed)
model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-4)
for step in range(STEPS):
    by_kind, by_energy = losses_of(model, *molecules(BATCH))
    loss = by_energy if step // TURN % 2 else by_kind
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 15 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    by_kind, by_energy = losses_of(model, *held_out)
    print("final:", (by_kind + by_energy / 1000).item())
