# expect: healthy
# symptom: resembles the fault that the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# axis: none
# mended: none
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class SelectiveScan(nn.Module):
    def __init__(self, width, n_state=6):
        super().__init__()
        start = torch.arange(1, n_state + 1).float().repeat(width, 1)
        self.A_log = nn.Parameter(torch.log(start))
        self.dt_proj = nn.Linear(width, width)
        dt0 = torch.exp(torch.rand(width) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        with torch.no_grad():
            self.dt_proj.bias.copy_(dt0 + torch.log(-torch.expm1(-dt0)))
        self.b_proj = nn.Linear(width, n_state)
        self.c_proj = nn.Linear(width, n_state)
        self.skip = nn.Parameter(torch.ones(width))

    def forward(self, u):
        rate = -torch.exp(self.A_log)
        dt = F.softplus(self.dt_proj(u)).unsqueeze(-1)
        keep = torch.exp(dt * rate)
        drive = dt * self.b_proj(u).unsqueeze(2) * u.unsqueeze(-1)
        c = self.c_proj(u)
        state = torch.zeros_like(drive[:, 0])
        out = []
        for k in range(u.size(1)):
            state = keep[:, k] * state + drive[:, k]
            out.append(torch.einsum("ndm,nm->nd", state, c[:, k]))
        return torch.stack(out, 1) + self.skip * u


class BeatModel(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inp = nn.Linear(1, width)
        self.norm = nn.LayerNorm(width)
        self.scan = SelectiveScan(width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        h = self.inp(x)
        h = h + self.scan(self.norm(h))
        return self.head(h.mean(1))


def beats(n, length=40):
    y = torch.randint(0, 2, (n,))
    t = torch.arange(length) / length
    freq = 3.0 + 2.0 * y.float() + 0.2 * torch.randn(n)
    x = torch.sin(2 * math.pi * freq[:, None] * t + 6.28 * torch.rand(n, 1))
    return (x + 0.2 * torch.randn(n, length)).unsqueeze(-1), y


torch.manual_seed(34)
x_train, y_train = beats(600)
x_test, y_test = beats(200)
model = BeatModel()
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
for step in range(40):
    i = torch.randint(0, 600, (32,))
    loss = F.cross_entropy(model(x_train[i]), y_train[i])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 10 == 9:
        with torch.no_grad():
            acc = (model(x_test).argmax(1) == y_test).float().mean()
        print(f"step {step + 1} loss {loss.item():.3f} acc {acc.item():.3f}")
