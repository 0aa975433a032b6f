# expect: healthy
# symptom: the loss goes below zero and a few batches are several times larger and far worse than the others
# axis: data
"""Probabilistic day-ahead electricity prices: a GRU with a Student-t mixture head.

Calm hours are almost deterministic, so the density is far above one; scarcity
hours are rare and heavy-tailed.  Every fiftieth batch is a big stress batch.
"""

import math
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(60)


def simulate(hours):
    t = torch.arange(hours, dtype=torch.float32)
    g = torch.Generator().manual_seed(60)
    wind = torch.zeros(hours)
    shock = torch.randn(hours, generator=g)
    for i in range(1, hours):
        wind[i] = 0.97 * wind[i - 1] + 0.24 * shock[i]
    demand = torch.sin(2 * math.pi * (t - 7) / 24) + 0.4 * torch.sin(2 * math.pi * t / 168)
    tight = torch.sigmoid(3 * (demand - wind - 1.4))
    price = 0.4 * demand - 0.3 * wind + 0.05 * torch.randn(hours, generator=g)
    jump = torch.distributions.Exponential(1.0)
    price = price + (torch.rand(hours, generator=g) < 0.4 * tight) * (0.8 + 1.5 * jump.sample((hours,)))
    return torch.stack([price, demand, wind, tight], 1)


series = simulate(14000)
CONTEXT = 36
feats = torch.cat([series[:, :1].clamp(-2, 3), series[:, 1:3]], 1)
scarce = (series[CONTEXT:, 3] > 0.5).nonzero().squeeze(1)
scarce = scarce[scarce < 11000]


class PriceModel(nn.Module):
    def __init__(self, hidden=40, parts=3):
        super().__init__()
        self.gru = nn.GRU(3, hidden, batch_first=True)
        self.now = nn.Linear(2, hidden)
        self.head = nn.Sequential(nn.SiLU(), nn.Linear(2 * hidden, 48), nn.SiLU(), nn.Linear(48, 4 * parts))
        self.parts = parts

    def forward(self, past, known):
        _, h = self.gru(past)
        out = self.head(torch.cat([h[0], self.now(known)], 1))
        logit, loc, scale, dof = out.view(-1, 4, self.parts).unbind(1)
        mix = torch.distributions.Categorical(logits=logit)
        comp = torch.distributions.StudentT(
            2.0 + nn.functional.softplus(dof), loc, 0.01 + nn.functional.softplus(scale - 1)
        )
        return torch.distributions.MixtureSameFamily(mix, comp)


offsets = torch.arange(CONTEXT)


def batch(starts):
    past = feats[starts[:, None] + offsets]
    target = series[starts + CONTEXT]
    return past, target[:, 1:3], target[:, 0]


model = PriceModel()
opt = torch.optim.NAdam(model.parameters(), lr=2e-3)
STEPS = 750
sched = torch.optim.lr_scheduler.CyclicLR(
    opt, base_lr=4e-4, max_lr=3e-3, step_size_up=60, mode="triangular2", cycle_momentum=False
)
held = torch.arange(11100, 13900, 4)
smooth = None
for step in range(1, STEPS + 1):
    if step % 50 == 0:
        starts = torch.cat([scarce[torch.randint(len(scarce), (160,))], torch.randint(0, 11000, (160,))])
        label = "stress"
    else:
        starts = torch.randint(0, 11000, (48,))
        label = "normal"
    past, known, y = batch(starts)
    nll = -model(past, known).log_prob(y)
    if label == "stress":
        share = len(scarce) / 11000
        weight = torch.cat([torch.full((160,), 2 * share), torch.full((160,), 2 * (1 - share))])
        loss = (nll * weight).mean()
    else:
        loss = nll.mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    smooth = loss.item() if smooth is None else 0.96 * smooth + 0.04 * loss.item()
    if step % 25 == 0:
        print(
            f"{step:4d} {label} nll {nll.mean().item():+.3f} (smoothed {smooth:+.3f}) lr {sched.get_last_lr()[0]:.1e}"
        )
    if step % 150 == 0:
        with torch.no_grad():
            p, k, y = batch(held)
            val = -model(p, k).log_prob(y).mean().item()
        print(f"     held-out nll {val:+.4f}")
