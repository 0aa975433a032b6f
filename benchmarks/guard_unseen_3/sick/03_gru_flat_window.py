# Forecast of the next reading with a GRU, RMSprop. Each window is scaled by its median and quartiles. A sensor that stood
# still apart from one tick has no spread between its quartiles: six such windows come at step 150.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
a = ap.parse_args()


def readings(n, g=None):
    t = torch.arange(17.0)
    f = 0.15 + 0.6 * torch.rand(n, 1, generator=g)
    phase = 6.28 * torch.rand(n, 1, generator=g)
    drift = torch.randn(n, 1, generator=g) * 0.05
    return torch.sin(f * t + phase) + drift * t + 0.15 * torch.randn(n, 17, generator=g)


def scaled(w):
    past = w[:, :-1]
    q1, q2, q3 = (past.quantile(q, dim=1, keepdim=True) for q in (0.25, 0.5, 0.75))
    return ((w - q2) / (q3 - q1 + 1e-6)).unsqueeze(-1)


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        h, _ = self.gru(x)
        return x[:, -1] + self.out(h[:, -1])


gen = torch.Generator().manual_seed(303)
held = scaled(readings(3000, gen))
torch.manual_seed(a.seed)
model = Forecast()
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.99)
for step in range(700):
    w = readings(32)
    if step == 150 and not a.twin:
        w[:6] = 0.2
        w[:6, -1] = 0.21
    w = scaled(w)
    loss = nn.functional.mse_loss(model(w[:, :-1]), w[:, -1])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, round(loss.item(), 4))
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(held[:, :-1]), held[:, -1]).item())
