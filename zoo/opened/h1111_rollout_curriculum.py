# expect: healthy
# symptom: loss goes up in stairs at steps 120, 240, 360 (the training horizon grows from 1 to 3, 8 and 16 steps), inputs get more noise as well; it ends above its early values
# axis: none
# mended: none
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
STAGES = [(0, 1), (120, 3), (240, 8), (360, 16)]


def double_pendulum(state, dt=0.04):
    """Two coupled pendulums, semi-implicit Euler with small inner steps."""
    q, p = state[:, :2].clone(), state[:, 2:].clone()
    for _ in range(4):
        k = 1.5 * torch.sin(q[:, :1] - q[:, 1:])
        acc = -torch.sin(q) * 4.0 + torch.cat([-k, k], 1)
        p = p + dt / 4 * acc
        q = q + dt / 4 * p
    return torch.cat([q, p], 1)


def simulate(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    s = torch.cat([torch.rand(n, 2, generator=g) * 4 - 2, torch.rand(n, 2, generator=g) * 4 - 2], 1)
    out = [s]
    for _ in range(length):
        s = double_pendulum(double_pendulum(s))
        out.append(s)
    return torch.stack(out, 1)


class Dynamics(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 4)
        )

    def forward(self, s):
        feats = torch.cat([s[:, :2].sin(), s[:, :2].cos(), s[:, 2:]], 1)
        return s + 0.3 * self.net(feats)


def horizon_at(step):
    return [h for start, h in STAGES if step >= start][-1]


def rollout_loss(model, traj, horizon):
    s, loss = traj[:, 0], 0.0
    for k in range(1, horizon + 1):
        s = model(s)
        loss = loss + F.mse_loss(s, traj[:, k])
    return loss


def main():
    torch.manual_seed(0)
    data, held = simulate(3000, 40, 1), simulate(300, 40, 2)
    model = Dynamics()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    steps = 520
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * s / steps)))
    for step in range(steps):
        h = horizon_at(step)
        i = torch.randint(0, len(data), (64,))
        start = torch.randint(0, 40 - h, (1,)).item()
        traj = data[i, start : start + h + 1].clone()
        traj[:, 0] += 0.002 * h * torch.randn(64, 4)
        loss = rollout_loss(model, traj, h)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} horizon {h:2d} loss {loss.item():.5f}", flush=True)
        if (step + 1) % 120 == 0 or step + 1 == steps:
            with torch.no_grad():
                print(
                    f"step {step:4d} held-out error over 16 steps {rollout_loss(model, held, 16).item() / 16:.5f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
