# expect: healthy
# symptom: resembles a divergence in mid-run: the training loss rises for hundreds of steps while the rate is constant
# axis: schedule
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import math
from dataclasses import dataclass
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    past: int = 20
    future: int = 16
    hidden: int = 40
    batch: int = 48
    steps: int = 480
    lr: float = 4e-3
    teacher_until: int = 100
    free_from: int = 340


def swings(n, length, gen):
    """noisy damped pendulum traces"""
    theta = 2 * torch.rand(n, generator=gen) - 1
    theta = 1.8 * theta
    speed = 1.5 * torch.randn(n, generator=gen)
    damp = 0.02 + 0.06 * torch.rand(n, generator=gen)
    out = []
    for _ in range(length):
        for _ in range(4):
            speed = speed + 0.06 * (-2.5 * torch.sin(theta) - damp * speed)
            theta = theta + 0.06 * speed
        out.append(torch.sin(theta))
    x = torch.stack(out, 1)
    return x + 0.05 * torch.randn(x.shape, generator=gen)


class Seq2Seq(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.encoder = nn.GRU(1, hidden, batch_first=True)
        self.cell = nn.GRUCell(1, hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, past, future, p_true):
        _, h = self.encoder(past.unsqueeze(-1))
        h = h[0]
        prev = past[:, -1:]
        preds = []
        for t in range(future.shape[1]):
            h = self.cell(prev, h)
            y = prev + self.out(h)
            preds.append(y)
            keep = torch.rand(len(past), 1) < p_true
            prev = torch.where(keep, future[:, t : t + 1], y)
        return torch.cat(preds, 1)


def truth_probability(step, cfg):
    if step < cfg.teacher_until:
        return 1.0
    if step >= cfg.free_from:
        return 0.0
    frac = (step - cfg.teacher_until) / (cfg.free_from - cfg.teacher_until)
    return 0.5 * (1 + math.cos(math.pi * frac))


def main():
    cfg = Config()
    torch.manual_seed(77)
    gen = torch.Generator().manual_seed(78)
    traces = swings(4000, cfg.past + cfg.future, gen)
    val = swings(400, cfg.past + cfg.future, gen)
    model = Seq2Seq(cfg.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step in range(cfg.steps):
        p = truth_probability(step, cfg)
        x = traces[torch.randint(len(traces), (cfg.batch,))]
        past, future = x[:, : cfg.past], x[:, cfg.past :]
        loss = F.mse_loss(model(past, future, p), future)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if (step + 1) % 20 == 0:
            with torch.no_grad():
                free = F.mse_loss(model(val[:, : cfg.past], val[:, cfg.past :], 0.0), val[:, cfg.past :])
            print(f"step {step + 1} loss {loss.item():.4f} p {p:.2f} free-run val {free.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
