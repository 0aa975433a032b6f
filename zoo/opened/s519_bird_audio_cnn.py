# expect: sick
# symptom: the accuracy begins to rise, then it and the loss freeze on a plateau far from what the model could reach
# axis: schedule
# cause: ReduceLROnPlateau is left in its default mode='min' but is stepped with the validation accuracy, so a rising accuracy counts as a plateau and the learning rate is cut again and again to almost zero
# says: mode\W{0,6}(=|is|to|left|of|as)?.{0,20}(min|max)|reduce.?lr.?on.?plateau.{0,100}(min|max|mode|wrong|accuracy|direction|inverted)|plateau.{0,60}(mode|direction|accuracy|inverted|wrong (way|sign))|(scheduler|lr|learning.rate).{0,100}(accuracy|mode.{0,5}min|higher.is.better|maximi[sz]e|metric (improves|rises|increases))
# onset_step: 97
# fix: build the scheduler with mode="max"
# mended: with MENDED=1 the scheduler is built with mode="max"
import dataclasses
import logging
import os
import sys

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(message)s")


@dataclasses.dataclass
class Config:
    sr: int = 4000
    seconds: float = 0.5
    n_fft: int = 128
    hop: int = 64
    species: int = 8
    n_train: int = 1024
    n_val: int = 320
    batch: int = 32
    epochs: int = 16
    lr: float = 0.02
    patience: int = 1
    factor: float = 0.1


def song(k, cfg, rng):
    """Each species has its own carrier, sweep and trill rate."""
    n = int(cfg.sr * cfg.seconds)
    t = np.arange(n) / cfg.sr
    f0 = 500 + 120 * (k % 4) + rng.normal(0, 35)
    sweep = (-1) ** (k // 4) * (300 + rng.normal(0, 60))
    trill = 6 + 3 * (k % 2) + rng.normal(0, 0.5)
    phase = 2 * np.pi * (f0 * t + sweep * (t - cfg.seconds / 2) ** 2)
    wav = np.sin(phase) * (0.6 + 0.4 * np.sin(2 * np.pi * trill * t + rng.uniform(0, 6)))
    wav += 0.5 * np.sin(2 * np.pi * rng.uniform(300, 1800) * t)
    return (wav + 0.9 * rng.standard_normal(n)).astype(np.float32)


def build_split(n, cfg, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, cfg.species, n)
    wav = torch.from_numpy(np.stack([song(int(k), cfg, rng) for k in y]))
    win = torch.hann_window(cfg.n_fft)
    spec = torch.stft(wav, cfg.n_fft, cfg.hop, window=win, return_complex=True).abs()
    logspec = torch.log(spec + 1e-3)[:, :48]
    return ((logspec - 1.0) / 1.5)[:, None], torch.from_numpy(y)


class SongNet(nn.Module):
    def __init__(self, n_classes):
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))

        self.features = nn.Sequential(block(1, 12), block(12, 24), block(24, 32))
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(32 * 6 * 4, 64), nn.ReLU(), nn.Linear(64, n_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def run(cfg):
    torch.manual_seed(2)
    xt, yt = build_split(cfg.n_train, cfg, 10)
    xv, yv = build_split(cfg.n_val, cfg, 11)
    model = SongNet(cfg.species)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.8)
    mode = {"mode": "max"} if os.environ.get("MENDED") == "1" else {}
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=cfg.factor, patience=cfg.patience, **mode)
    step = 0
    for epoch in range(cfg.epochs):
        model.train()
        total = 0.0
        for idx in torch.randperm(len(xt)).split(cfg.batch):
            loss = nn.functional.cross_entropy(model(xt[idx]), yt[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            total += loss.item() * len(idx)
        acc = accuracy(model, xv, yv)
        sched.step(acc)
        logging.info("epoch %d step %d loss %.4f val_acc %.3f", epoch, step, total / len(xt), acc)


if __name__ == "__main__":
    run(Config())
