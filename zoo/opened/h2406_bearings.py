# expect: healthy
# symptom: the domain loss rises and sticks near ln 2, like a discriminator that fails to learn
# axis: model
"""Bearing-fault diagnosis carried over from a test rig to a plant machine.

Domain-adversarial training: labels exist for the rig only, a gradient-reversal
branch makes the encoder blind to which machine a vibration window came from.
"""

import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function

torch.set_num_threads(1)
torch.manual_seed(404)
LEN, FAULTS = 128, 4
g = torch.Generator().manual_seed(404)
t = torch.arange(LEN) / LEN
rate = torch.tensor([0.0, 5.0, 9.0, 5.0])
ring = torch.tensor([0.0, 24.0, 34.0, 46.0])


def windows(n, plant):
    y = torch.randint(0, FAULTS, (n,), generator=g)
    phase = torch.rand(n, 1, generator=g)
    shaft = torch.sin(2 * math.pi * (3 * t + phase))
    pulses = torch.exp(-5 * ((rate[y][:, None] * t + phase * 3) % 1.0))
    tone = ring[y][:, None] * (0.97 if plant else 1.0)
    carrier = torch.sin(2 * math.pi * (tone * t + torch.rand(n, 1, generator=g)))
    x = shaft + 1.6 * (y > 0)[:, None] * pulses * carrier
    if plant:
        hum = torch.sin(2 * math.pi * (5 * t + torch.rand(n, 1, generator=g)))
        x = 0.7 * x + 0.8 * hum + 0.3
    x = x + 0.25 * torch.randn(n, LEN, generator=g)
    return x[:, None], y


class Reverse(Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Encoder(nn.Sequential):
    def __init__(self, ch=24, out=32):
        super().__init__(
            nn.Conv1d(1, ch, 9, stride=2, padding=4),
            nn.GroupNorm(4, ch),
            nn.ReLU(),
            nn.Conv1d(ch, ch, 7, stride=2, padding=3),
            nn.GroupNorm(4, ch),
            nn.ReLU(),
            nn.Conv1d(ch, out, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(2),
            nn.Flatten(),
            nn.Linear(2 * out, out),
            nn.ReLU(),
        )


encoder = Encoder()
diagnose = nn.Linear(32, FAULTS)
which = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
modules = nn.ModuleList([encoder, diagnose, which])
opt = torch.optim.Adam(modules.parameters(), lr=1.5e-3, betas=(0.8, 0.999))

rig_x, rig_y = windows(4000, plant=False)
plant_x, _ = windows(4000, plant=True)
test_x, test_y = windows(800, plant=True)
rig_test_x, rig_test_y = windows(800, plant=False)

STEPS, B = 600, 48


@torch.no_grad()
def accuracy(x, y):
    return (diagnose(encoder(x)).argmax(1) == y).float().mean().item()


history = {"label": [], "domain": []}
for step in range(1, STEPS + 1):
    progress = step / STEPS
    strength = 0.3 * (2 / (1 + math.exp(-8 * progress)) - 1)
    i = torch.randint(0, len(rig_x), (B,), generator=g)
    j = torch.randint(0, len(plant_x), (B,), generator=g)
    h = encoder(torch.cat([rig_x[i], plant_x[j]]))
    label_loss = F.cross_entropy(diagnose(h[:B]), rig_y[i])
    logits = which(Reverse.apply(h, strength)).squeeze(1)
    side = torch.cat([torch.zeros(B), torch.ones(B)])
    domain_loss = F.binary_cross_entropy_with_logits(logits, side)
    loss = label_loss + domain_loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    for group in opt.param_groups:
        group["lr"] = 1.5e-3 / (1 + 4 * progress) ** 0.75
    history["label"].append(label_loss.item())
    history["domain"].append(domain_loss.item())
    if step % 30 == 0:
        mean = {k: sum(v[-30:]) / 30 for k, v in history.items()}
        print(f"step {step:3d} label {mean['label']:.4f} domain {mean['domain']:.4f} strength {strength:.2f}")
    if step % 150 == 0:
        print(f"    rig accuracy {accuracy(rig_test_x, rig_test_y):.3f}  plant accuracy {accuracy(test_x, test_y):.3f}")
