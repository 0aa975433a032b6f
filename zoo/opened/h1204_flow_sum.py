# expect: healthy
# symptom: the loss starts in the thousands, becomes negative and goes on falling into large negative numbers
# axis: none
# mended: none
"""Normalising flow (affine couplings) on 16-dimensional sensor vectors of narrow spread; loss in nats per batch."""

import math
import os
import time

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)

DIM, STEPS, BATCH, DEPTH = 16, 500, 128, 6


def readings(n, gen):
    mix = torch.randn(4, DIM, generator=torch.Generator().manual_seed(3)) * 0.4
    z = torch.randn(n, 4, generator=gen)
    x = torch.tanh(z @ mix) + 0.3 * (z**2) @ mix.flip(0).abs() * 0.2
    return x + 0.03 * torch.randn(n, DIM, generator=gen)


class Coupling(nn.Module):
    def __init__(self, mask, h=96):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(DIM, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, 2 * DIM))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        s, t = self.net(x * self.mask).chunk(2, -1)
        s = 2 * torch.tanh(s / 2) * (1 - self.mask)
        return x * self.mask + (1 - self.mask) * (x * s.exp() + t), s.sum(-1)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        m = torch.zeros(DIM)
        m[::2] = 1
        self.layers = nn.ModuleList()
        for k in range(DEPTH):
            mask = (m if k % 2 == 0 else 1 - m).clone()
            if k >= 2:
                mask = mask[torch.randperm(DIM, generator=torch.Generator().manual_seed(k // 2))]
            self.layers.append(Coupling(mask))

    def log_prob(self, x):
        logdet = 0.0
        for layer in self.layers:
            x, s = layer(x)
            logdet = logdet + s
        return -0.5 * (x**2).sum(-1) - 0.5 * DIM * math.log(2 * math.pi) + logdet


def main():
    gen = torch.Generator().manual_seed(1)
    train, test = readings(12000, gen), readings(2000, gen)
    model = Flow()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    t0 = time.time()
    for step in range(STEPS):
        x = train[torch.randint(0, len(train), (BATCH,), generator=gen)]
        loss = -model.log_prob(x).sum()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 20.0 * BATCH)
        opt.step()
        sched.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.1f}", flush=True)
    with torch.no_grad():
        print(
            f"nats per vector: train {-model.log_prob(train[:2000]).mean():.3f} test {-model.log_prob(test).mean():.3f}"
            f"   {time.time() - t0:.1f}s"
        )


if __name__ == "__main__":
    main()
