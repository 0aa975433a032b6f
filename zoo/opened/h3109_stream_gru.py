# expect: healthy
# symptom: the loss jumps up at regular places, as with a broken resume or a state that leaks between chunks
# axis: schedule
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
LANES, CHUNK, HIDDEN, STEPS = 16, 25, 64, 420


def machine_load(length, seed):
    """Load of a machine: two rhythms, slow drift, and a mode that switches now and then."""
    rng = np.random.default_rng(seed)
    t = np.arange(length)
    mode, drift, out = 0, 0.0, np.zeros(length)
    phase = rng.uniform(0, 2 * math.pi, 2)
    for i in range(length):
        if rng.random() < 0.01:
            mode = 1 - mode
        drift = 0.995 * drift + rng.normal(0, 0.02)
        fast = np.sin(2 * math.pi * t[i] / 9 + phase[0])
        slow = np.sin(2 * math.pi * t[i] / 31 + phase[1])
        out[i] = drift + (0.8 * fast if mode == 0 else 0.8 * abs(slow)) + 0.3 * slow + rng.normal(0, 0.04)
    return out


class Lanes:
    """Each lane is one long recording; chunks follow each other without gaps, then all lanes start over."""

    def __init__(self, lanes, length, seed):
        data = np.stack([machine_load(length, seed * 1000 + i) for i in range(lanes)])
        self.data = torch.tensor(data, dtype=torch.float32)[..., None]

    def __iter__(self):
        for at in range(0, self.data.size(1) - CHUNK - 1, CHUNK):
            yield at == 0, self.data[:, at : at + CHUNK], self.data[:, at + 1 : at + CHUNK + 1]


class Predictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, HIDDEN, num_layers=1, batch_first=True)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, x, h):
        y, h = self.rnn(x, h)
        return x + self.out(y), h


@torch.no_grad()
def evaluate(model, lanes):
    h, total, naive, n = None, 0.0, 0.0, 0
    for _, x, y in lanes:
        pred, h = model(x, h)
        total += F.mse_loss(pred, y).item()
        naive += F.mse_loss(x, y).item()
        n += 1
    return total / n, naive / n


def main():
    torch.manual_seed(31)
    train, test = Lanes(LANES, 1501, 1), Lanes(8, 1501, 2)
    model = Predictor()
    opt = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-5)
    step, h, recent = 0, None, []
    while step < STEPS:
        for first, x, y in train:
            if step >= STEPS:
                break
            h = None if first else h.detach()
            pred, h = model(x, h)
            loss = F.mse_loss(pred, y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            opt.step()
            sched.step()
            recent.append(loss.item())
            if step % 15 == 0:
                mean = sum(recent[-15:]) / len(recent[-15:])
                print(f"step {step:4d} loss {loss.item():.5f} mean {mean:.5f} lr {sched.get_last_lr()[0]:.2e}")
            step += 1
    mse, naive = evaluate(model, test)
    print(f"test mse {mse:.5f} (last value repeated: {naive:.5f})")


if __name__ == "__main__":
    main()
