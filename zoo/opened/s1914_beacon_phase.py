# expect: sick
# symptom: the fit of a strongly periodic signal stalls at the variance of the signal; neither width nor rate helps
# axis: precision
# cause: unix timestamps of about 1.7e9 seconds are cast to float32, whose spacing there is 128 seconds, before the phase of a 45 second cycle is computed, so the phase features are rounding noise
# says: (float ?32|single[- ]precision|precision|resolution|round\w*|cast|quanti[sz]\w*|mantissa|ulp)[^.]*(time|epoch|second|phase|unix)|(time|epoch|unix|phase)[^.]*(float ?32|single[- ]precision|precision|resolution|round\w*|quanti[sz]\w*|mantissa|ulp|float64|double)
# onset_step: 1
# fix: subtract the first timestamp (in float64) before casting to float32
# mended: yes
import os
import math
import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset, DataLoader, random_split

MENDED = os.environ.get("MENDED") == "1"

PERIOD = 45.0  # seconds per turn of the beacon
HARMONICS = 4


def record_station(n, seed):
    """Intensity samples of a rotating beacon over two days, with the time of each sample."""
    rng = np.random.default_rng(seed)
    start = 1_731_542_400.0
    stamp = np.sort(start + rng.uniform(0, 2 * 86400, n))
    phase = 2 * np.pi * ((stamp - start) % PERIOD) / PERIOD
    haze = rng.uniform(0, 1, n)
    tilt = rng.normal(0, 1, n)
    beam = np.exp(3.0 * (np.cos(phase - 1.1) - 1)) + 0.5 * np.exp(4.0 * (np.cos(phase - 3.9) - 1))
    y = 2.2 * beam * (1 - 0.5 * haze) + 0.15 * tilt + rng.normal(0, 0.05, n)
    return stamp, np.stack([haze, tilt], 1), y


class BeaconSet(Dataset):
    def __init__(self, stamp, weather, intensity):
        if MENDED:
            stamp = stamp - stamp[0]
        self.time = torch.as_tensor(stamp, dtype=torch.float32)
        self.weather = torch.as_tensor(weather, dtype=torch.float32)
        y = torch.as_tensor(intensity, dtype=torch.float32)
        self.y = (y - y.mean()) / y.std()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.time[i], self.weather[i], self.y[i]


class PhaseEncoder(nn.Module):
    def __init__(self, period, harmonics):
        super().__init__()
        self.period = period
        self.register_buffer("k", torch.arange(1, harmonics + 1).float())

    def forward(self, t):
        turn = torch.remainder(t, self.period) / self.period
        w = 2 * math.pi * turn.unsqueeze(-1) * self.k
        return torch.cat([w.sin(), w.cos()], -1)


class BeaconNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.phase = PhaseEncoder(PERIOD, HARMONICS)
        self.body = nn.Sequential(
            nn.Linear(2 * HARMONICS + 2, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 1),
        )

    def forward(self, t, weather):
        return self.body(torch.cat([self.phase(t), weather], -1)).squeeze(-1)


class Trainer:
    def __init__(self, model, train, val, lr=3e-3, epochs=8):
        self.model, self.train_dl, self.val_dl = model, train, val
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, lr, total_steps=epochs * len(train))
        self.epochs = epochs
        self.step = 0

    @torch.no_grad()
    def validate(self):
        err = [(self.model(t, w) - y).pow(2) for t, w, y in self.val_dl]
        return torch.cat(err).mean().item()

    def fit(self):
        for epoch in range(self.epochs):
            for t, w, y in self.train_dl:
                loss = nn.functional.mse_loss(self.model(t, w), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.sched.step()
                self.step += 1
                if self.step % 40 == 0:
                    print(f"step {self.step} loss {loss.item():.4f}", flush=True)
            print(f"epoch {epoch} val mse {self.validate():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(11)
    data = BeaconSet(*record_station(12000, seed=11))
    train_part, val_part = random_split(data, [10000, 2000])
    trainer = Trainer(
        BeaconNet(),
        DataLoader(train_part, batch_size=128, shuffle=True),
        DataLoader(val_part, batch_size=500),
    )
    trainer.fit()
