# expect: healthy
# symptom: none (the same curriculum, loss rises in stairs as the horizon grows)
# axis: none
# mended: none
"""Learn one-step dynamics of a driven pendulum pair by unrolling the model over a growing horizon."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(31)
np.random.seed(31)


def simulate(n_traj, n_step, dt=0.1):
    q = np.random.uniform(-1.5, 1.5, (n_traj, 2))
    p = np.random.uniform(-1.0, 1.0, (n_traj, 2))
    rows = []
    for k in range(n_step):
        rows.append(np.concatenate([q, p], 1))
        for _ in range(4):
            force = -np.sin(q) - 0.4 * (q - q[:, ::-1]) - 0.05 * p
            p = p + dt / 4 * force
            q = q + dt / 4 * p
    return torch.tensor(np.stack(rows, 1), dtype=torch.float32)


class StepModel(nn.Module):
    def __init__(self, width=80):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))

    def forward(self, state):
        return state + 0.1 * self.f(state)

    def rollout(self, state, horizon):
        out = []
        for _ in range(horizon):
            state = self(state)
            out.append(state)
        return torch.stack(out, 1)


STAGES = [(0, 1), (90, 4), (180, 10), (270, 20), (360, 36)]


def horizon_at(step):
    return max(h for s, h in STAGES if s <= step)


data = simulate(256, 80)
model = StepModel()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(440):
    H = horizon_at(step)
    who = torch.randint(0, data.shape[0], (32,))
    when = int(torch.randint(0, data.shape[1] - H - 1, (1,)))
    chunk = data[who, when : when + H + 1]
    pred = model.rollout(chunk[:, 0], H)
    loss = ((pred - chunk[:, 1:]) ** 2).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 15 == 0:
        print(f"step {step:3d} horizon {H:2d} loss {loss.item():.6f}")

with torch.no_grad():
    test = simulate(64, 60)
    roll = model.rollout(test[:, 0], 59)
    print("59 step error", ((roll - test[:, 1:]) ** 2).sum(-1).mean().item())
