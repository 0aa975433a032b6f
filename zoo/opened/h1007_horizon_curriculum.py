# expect: healthy
# symptom: the loss goes up in steps (at 150, 300 and 450) and ends higher than it was early; it is a curriculum of growing forecast horizon and the validation error at full horizon falls
# axis: none
# mended: none
import math
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(107)

CONTEXT, FULL, BATCH = 30, 16, 32
STAGES = [(0, 1), (150, 4), (300, 8), (450, 16)]
STEPS = 700


def simulate(n, length):
    """a noisy damped pendulum with a drive: the error grows with the horizon"""
    angle, speed = torch.randn(n), torch.randn(n)
    phase = torch.rand(n) * 6.28
    out = []
    for t in range(length):
        force = -1.2 * angle.sin() - 0.08 * speed + 0.5 * torch.cos(0.25 * t + phase)
        speed = speed + 0.25 * force + 0.12 * torch.randn(n)
        angle = angle + 0.25 * speed
        out.append(torch.stack([angle.sin(), angle.cos(), speed, torch.cos(0.25 * t + phase)], 1))
    return torch.stack(out, 1)


class Roller(nn.Module):
    def __init__(self, obs=4, hidden=64):
        super().__init__()
        self.enc = nn.GRU(obs, hidden, batch_first=True)
        self.cell = nn.GRUCell(obs, hidden)
        self.out = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, obs))

    def forward(self, past, horizon):
        _, h = self.enc(past)
        h, x, ys = h[0], past[:, -1], []
        for _ in range(horizon):
            x = x + self.out(h)
            ys.append(x)
            h = self.cell(x, h)
        return torch.stack(ys, 1)


class Curriculum:
    def __init__(self, stages):
        self.stages = stages

    def horizon(self, step):
        return [h for at, h in self.stages if step >= at][-1]


@torch.no_grad()
def full_error(model, data):
    model.eval()
    past, future = data[:, :CONTEXT], data[:, CONTEXT : CONTEXT + FULL]
    err = F.mse_loss(model(past, FULL), future).item()
    naive = F.mse_loss(past[:, -1:].expand_as(future), future).item()
    model.train()
    return err, naive


def main():
    length = 120
    train = simulate(400, length)
    val = simulate(200, CONTEXT + FULL)
    model = Roller()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    curriculum = Curriculum(STAGES)
    for step in range(STEPS):
        h = curriculum.horizon(step)
        rows = torch.randint(0, len(train), (BATCH,))
        at = torch.randint(0, length - CONTEXT - FULL, (BATCH,))
        w = train[rows[:, None], at[:, None] + torch.arange(CONTEXT + FULL)]
        pred = model(w[:, :CONTEXT], h)
        loss = F.mse_loss(pred, w[:, CONTEXT : CONTEXT + h])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0 or step == STEPS - 1:
            err, naive = full_error(model, val)
            print(
                f"step {step:4d}  horizon {h:2d}  loss {loss.item():.4f}  full-horizon val {err:.4f} (naive {naive:.4f})"
            )


if __name__ == "__main__":
    main()
