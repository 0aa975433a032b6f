# expect: sick
# symptom: loss drops quickly to about the variance of the ratings and stays there; all predictions lie within a hundredth of the mean rating (spread 0.006 against 0.84)
# axis: loss
# cause: predictions have shape (B,1) and ratings (B,), their difference broadcasts to (B,B), so every prediction is pulled to the batch mean
# says: broadcast|\(?b(atch)?,? ?(x )?1\)?.{0,60}\(b(atch)?,?\)|shape.{0,60}(mismatch|differ|disagree|unequal|not match|\(\d+, ?1\))|squeeze|unsqueeze|(outer|pairwise) (difference|product|matrix)|(n|b|batch) ?[x×*,] ?(n|b|batch)\b
# onset_step: 0
# fix: squeeze the last dimension of the predictions (or unsqueeze the ratings)
# mended: the ratings get a trailing dimension
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(41)

MELS, FRAMES = 20, 40
BATCH, STEPS = 24, 300


def synth_clip(rng):
    """Harmonic 'voice' in a mel picture, degraded by noise, dropouts and clipping."""
    f0 = rng.uniform(2, 5)
    t = np.arange(FRAMES)
    wobble = f0 + 0.6 * np.sin(2 * np.pi * t / rng.uniform(12, 40))
    bins = np.arange(MELS)[:, None]
    voice = np.cos(2 * np.pi * bins / wobble[None]) * np.exp(-bins / 25.0)
    voice *= (0.6 + 0.4 * np.sin(2 * np.pi * t / rng.uniform(8, 20)))[None]
    noise = rng.uniform(0, 1.2)
    drop = rng.uniform(0, 0.35)
    mel = voice + noise * rng.normal(size=voice.shape)
    gone = rng.random(FRAMES) < drop
    mel[:, gone] = -1.5
    mos = 5.0 - 2.0 * noise - 4.0 * gone.mean() + 0.15 * rng.normal()
    return mel.astype(np.float32), np.float32(np.clip(mos, 1, 5))


def make_set(n, seed):
    rng = np.random.default_rng(seed)
    clips, ratings = zip(*(synth_clip(rng) for _ in range(n)))
    return torch.from_numpy(np.stack(clips)), torch.from_numpy(np.array(ratings))


class MOSNet(nn.Module):
    """Convolutions over the mel picture, a GRU over time, attention pooling, one score."""

    def __init__(self, hidden=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=(2, 1), padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 12, 3, stride=(2, 2), padding=1),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(12 * (MELS // 4), hidden, batch_first=True, bidirectional=True)
        self.att = nn.Linear(2 * hidden, 1)
        self.score = nn.Linear(2 * hidden, 1)

    def forward(self, mel):
        h = self.conv(mel.unsqueeze(1))
        h = h.flatten(1, 2).transpose(1, 2)
        h, _ = self.rnn(h)
        w = torch.softmax(self.att(h), dim=1)
        return 3.0 + self.score((w * h).sum(dim=1))


class Trainer:
    def __init__(self, model, train, dev):
        self.model, self.train, self.dev = model, train, dev
        self.opt = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.gen = torch.Generator().manual_seed(3)

    def objective(self, pred, mos):
        if MENDED:
            mos = mos.unsqueeze(-1)
        err = pred - mos
        # small differences between listeners should not count in full
        return torch.where(err.abs() < 0.1, 0.5 * err.pow(2), err.pow(2)).mean()

    def fit(self):
        x, y = self.train
        t0 = time.time()
        for step in range(STEPS):
            idx = torch.randint(0, len(x), (BATCH,), generator=self.gen)
            loss = self.objective(self.model(x[idx]), y[idx])
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.opt.step()
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} t {time.time() - t0:.1f}")
            if step % 75 == 74:
                self.report(step)

    @torch.no_grad()
    def report(self, step):
        x, y = self.dev
        p = self.model(x).flatten()
        corr = np.corrcoef(p.numpy(), y.numpy())[0, 1]
        print(
            f"dev step {step} correlation {corr:.3f} spread of predictions {p.std().item():.3f} "
            f"of ratings {y.std().item():.3f}"
        )


if __name__ == "__main__":
    Trainer(MOSNet(), make_set(1500, 1), make_set(200, 2)).fit()
