# The law of a sensor's error given its setting, as a mixture of Gaussians. Ten updates on the likelihood alternate with five on the
# reconstruction of the setting, from one trunk; the likelihood falls below zero. RMSprop.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

SETTING, PARTS, BATCH, STEPS = 8, 4, 256, 1200
world = torch.Generator().manual_seed(86)
centre = torch.randn(SETTING, generator=world) / 3
width_of = torch.randn(SETTING, generator=world) / 4


def readings(count, generator):
    setting = torch.randn(count, SETTING, generator=generator)
    side = torch.randint(2, (count,), generator=generator) * 2.0 - 1
    spread = 0.03 * torch.exp(torch.tanh(setting @ width_of))
    error = side * (0.8 + 0.4 * torch.tanh(setting @ centre)) + spread * torch.randn(count, generator=generator)
    return setting, error


class Law(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(SETTING, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.parts = nn.Linear(width, 3 * PARTS)
        self.back = nn.Linear(width, SETTING)

    def nll(self, setting, error):
        weight, mean, spread = self.parts(self.trunk(setting)).chunk(3, 1)
        law = torch.distributions.Normal(mean, spread.clamp(-5, 3).exp())
        return -torch.logsumexp(weight.log_softmax(1) + law.log_prob(error[:, None]), 1).mean()

    def rebuild(self, setting):
        return (self.back(self.trunk(setting)) - setting).square().sum(1).mean()


held_out = readings(5000, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1600 + args.seed)
model = Law()
optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.98)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
for step in range(STEPS):
    setting, error = readings(BATCH, stream)
    if step % 15 < 10:
        name, loss = "law", model.nll(setting, error)
    else:
        name, loss = "setting", model.rebuild(setting)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    schedule.step()
    if step % 80 == 0:
        print(f"step {step} {name} {loss.item():.4f}")
with torch.no_grad():
    print("final:", model.nll(*held_out).exp().item())
