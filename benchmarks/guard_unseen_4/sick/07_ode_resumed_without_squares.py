# A vector field learned through a Runge-Kutta solver (pendulum with friction). At step 175 the run goes on from a checkpoint whose
# writer kept the weights, the step count and the first moments of Adam, not the second ones: they start at zero, with no correction left.
import argparse
import copy

import torch
import torch.nn as nn

ps = argparse.ArgumentParser()
ps.add_argument("--seed", type=int, default=0)
ps.add_argument("--twin", action="store_true")
ps = ps.parse_args()

DT = 0.15


def pendulum(s):
    q, v = s[..., :1], s[..., 1:]
    return torch.cat([v, -2 * torch.sin(q) - 0.15 * v], -1)


def rk4(field, s, steps):
    path = []
    for _ in range(steps):
        a = field(s)
        b = field(s + DT / 2 * a)
        c = field(s + DT / 2 * b)
        d = field(s + DT * c)
        s = s + DT / 6 * (a + 2 * b + 2 * c + d)
        path.append(s)
    return torch.stack(path, 1)


def starts(n, g=None):
    return (torch.rand(n, 2, generator=g) - 0.5) * torch.tensor([4.0, 4.0])


frozen = torch.Generator().manual_seed(2)
s_test = starts(500, frozen)
path_test = rk4(pendulum, s_test, 12)
torch.manual_seed(ps.seed)
field = nn.Sequential(nn.Linear(2, 64), nn.Softplus(), nn.Linear(64, 64), nn.Softplus(), nn.Linear(64, 2))
adam = torch.optim.Adam(field.parameters(), lr=5e-3, betas=(0.9, 0.9995))
for n in range(220):
    if n == 175:
        saved = copy.deepcopy({"model": field.state_dict(), "optim": adam.state_dict()})
        if not ps.twin:
            for entry in saved["optim"]["state"].values():
                entry["exp_avg_sq"].zero_()
        field.load_state_dict(saved["model"])
        adam.load_state_dict(saved["optim"])
    s = starts(64)
    with torch.no_grad():
        want = rk4(pendulum, s, 12) + 0.02 * torch.randn(64, 12, 2)
    loss = (rk4(field, s, 12) - want).pow(2).mean()
    adam.zero_grad()
    loss.backward()
    adam.step()
    if n % 20 == 0:
        print(n, f"{loss.item():.5f}")

with torch.no_grad():
    print("final:", (rk4(field, s_test, 12) - path_test).pow(2).mean().item())
