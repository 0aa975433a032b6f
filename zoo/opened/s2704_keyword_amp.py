# expect: sick
# symptom: the loss stays at its initial value (chance accuracy) although nothing explodes and no step is skipped
# axis: precision
# cause: the gradients are clipped while still multiplied by the loss scale (scaler.unscale_ is missing before clip_grad_norm_), so after unscaling by 65536 the updates are practically zero
# says: (unscal\w*.{0,160}clip)|(clip\w*.{0,160}(unscal|still scaled|scaled grad|loss[- ]scal|grad\w* scal|scale factor|before.{0,30}scal))|(scaled (grad|loss)\w*.{0,100}clip)
# onset_step: 1
# fix: call scaler.unscale_(optimizer) before clip_grad_norm_
# mended: yes
"""Keyword spotting on synthetic log-mel patches, half precision.

Adapted from our GPU recipe; runs on CPU too (--device cpu).
"""

import os
import sys
import math
import logging

import numpy as np
import torch
from torch import nn, optim
from torch.amp import GradScaler, autocast

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
log = logging.getLogger("kws")
torch.set_num_threads(1)

HP = {
    "classes": 10,
    "mels": 24,
    "frames": 32,
    "batch": 40,
    "lr": 0.05,
    "momentum": 0.9,
    "wd": 1e-4,
    "max_norm": 2.0,
    "epochs": 4,
    "train_size": 1920,
    "test_size": 480,
    "device": "cpu",
}


def make_split(n, seed):
    """Every keyword is a sequence of three formant trajectories plus noise."""
    proto = np.random.default_rng(7)
    tracks = proto.uniform(2, HP["mels"] - 3, (HP["classes"], 3, 4))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, HP["classes"], n)
    feats = np.empty((n, HP["mels"], HP["frames"]), dtype=np.float32)
    bins = np.arange(HP["mels"])[:, None]
    for i, c in enumerate(y):
        stretch = rng.uniform(0.8, 1.2)
        offset = rng.uniform(-0.1, 0.1)
        pos = np.clip(np.linspace(0, 1, HP["frames"]) * stretch + offset, 0, 1) * 3
        spec = np.zeros((HP["mels"], HP["frames"]))
        for f in range(3):
            centre = np.interp(pos, np.arange(4), tracks[c, f]) + rng.normal(0, 0.4)
            spec += (1.0 - 0.25 * f) * np.exp(-0.5 * ((bins - centre[None]) / 1.1) ** 2)
        spec += 0.9 * rng.normal(size=spec.shape)
        feats[i] = spec
    feats -= feats.mean(axis=(1, 2), keepdims=True)
    feats /= feats.std(axis=(1, 2), keepdims=True)
    return torch.from_numpy(feats), torch.from_numpy(y)


class TDNN(nn.Module):
    def __init__(self):
        super().__init__()
        chans = [HP["mels"], 48, 48, 64]
        layers = []
        for i, dil in enumerate((1, 2, 3)):
            layers += [
                nn.Conv1d(chans[i], chans[i + 1], 3, padding=dil, dilation=dil),
                nn.GroupNorm(4, chans[i + 1]),
                nn.ReLU(inplace=True),
            ]
        self.frames = nn.Sequential(*layers)
        self.out = nn.Linear(2 * chans[-1], HP["classes"])

    def forward(self, x):
        h = self.frames(x)
        stats = torch.cat([h.mean(-1), h.float().std(-1).to(h.dtype)], dim=1)
        return self.out(stats)


class Trainer:
    def __init__(self, model, train, test):
        self.model = model
        self.train_x, self.train_y = train
        self.test_x, self.test_y = test
        self.steps_per_epoch = len(self.train_y) // HP["batch"]
        self.opt = optim.SGD(
            model.parameters(), lr=HP["lr"], momentum=HP["momentum"], weight_decay=HP["wd"], nesterov=True
        )
        total = self.steps_per_epoch * HP["epochs"]
        self.sched = optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / total))
        )
        self.scaler = GradScaler(HP["device"])
        self.criterion = nn.CrossEntropyLoss()
        self.step = 0

    def train_step(self, x, y):
        self.opt.zero_grad(set_to_none=True)
        with autocast(HP["device"], dtype=torch.float16):
            logits = self.model(x)
            loss = self.criterion(logits.float(), y)
        self.scaler.scale(loss).backward()
        if os.environ.get("MENDED") == "1":
            self.scaler.unscale_(self.opt)
        nn.utils.clip_grad_norm_(self.model.parameters(), HP["max_norm"])
        self.scaler.step(self.opt)
        self.scaler.update()
        self.sched.step()
        self.step += 1
        return loss.item()

    @torch.inference_mode()
    def evaluate(self):
        self.model.eval()
        with autocast(HP["device"], dtype=torch.float16):
            pred = self.model(self.test_x).argmax(-1)
        self.model.train()
        return (pred == self.test_y).float().mean().item()

    def fit(self):
        for epoch in range(HP["epochs"]):
            order = torch.randperm(len(self.train_y))
            for b in range(self.steps_per_epoch):
                idx = order[b * HP["batch"] : (b + 1) * HP["batch"]]
                loss = self.train_step(self.train_x[idx], self.train_y[idx])
                if self.step % 20 == 0:
                    log.info(
                        "step %4d loss %.4f lr %.4f scale %g",
                        self.step,
                        loss,
                        self.sched.get_last_lr()[0],
                        self.scaler.get_scale(),
                    )
            log.info("epoch %d test acc %.3f", epoch + 1, self.evaluate())


if __name__ == "__main__":
    torch.manual_seed(0)
    net = TDNN().to(HP["device"])
    Trainer(net, make_split(HP["train_size"], 1), make_split(HP["test_size"], 2)).fit()
