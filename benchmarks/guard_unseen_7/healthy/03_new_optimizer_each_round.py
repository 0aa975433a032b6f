# Federated learning of a demand model: in each round every one of four sites starts from the common weights with a new Adam, takes
# 20 steps on its own data, which differ from the others', and the weights are averaged. The loss jumps at each change of site.
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

ROUNDS, SITES, LOCAL, BATCH, SIZE = 10, 4, 20, 256, 16
world = torch.Generator().manual_seed(8303)
mix = torch.randn(SIZE, 10, generator=world) / SIZE**0.5
habit = torch.randn(10, generator=world)
place = 1.2 * torch.randn(SITES, SIZE, generator=world)


def demand(count, site, generator=None):
    """Counts at one site; the sites see different customers."""
    x = place[site] + torch.randn(count, SIZE, generator=generator)
    rate = (1.2 + 0.6 * torch.sin(1.3 * x @ mix) @ habit).exp().clamp(max=200)
    return x, torch.poisson(rate, generator=generator)


class Net(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(SIZE, width),
            nn.GELU(),
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.GELU(),
            nn.LayerNorm(width),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


def loss_of(model, x, count):
    return F.poisson_nll_loss(model(x).clamp(max=8), count, log_input=True, full=True)


held = [demand(2000, site, world) for site in range(SITES)]
held_out = torch.cat([h[0] for h in held]), torch.cat([h[1] for h in held])
torch.manual_seed(args.seed)
model = Net()
step = 0
for turn in range(ROUNDS):
    common = copy.deepcopy(model.state_dict())
    total = {name: torch.zeros_like(value) for name, value in common.items()}
    for site in range(SITES):
        model.load_state_dict(common)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3 * 0.85**turn)
        for _ in range(LOCAL):
            loss = loss_of(model, *demand(BATCH, site))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 in (0, 19):
                print(f"step {step} site {site} loss {loss.item():.4f}")
            step += 1
        for name, value in model.state_dict().items():
            total[name] += value / SITES
    model.load_state_dict(total)
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
