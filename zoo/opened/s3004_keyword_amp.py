# expect: sick
# symptom: loss stays at its first value and accuracy at chance, no nan, gradient norm is logged as huge
# axis: precision
# cause: gradients are clipped while still multiplied by the loss scale (no unscale_ before), so updates are tiny
# says: unscale|clip\w*.*scal(e|ed|er|ing)\b|(loss.?scal|scaled|scaler)\w*.*clip
# onset_step: 1
# fix: call scaler.unscale_(optimizer) before clip_grad_norm_
# mended: the script applies that change if the environment has MENDED=1
"""Keyword spotting on synthetic log-mel patches with mixed precision."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
ALT = os.environ.get("MENDED") == "1"
CFG = dict(seed=21, words=8, mels=24, frames=40, batch=32, epochs=5, lr=0.08, max_norm=1.0)


def formant_track(word, rng):
    g = np.random.default_rng(100 + word)
    start, end = g.uniform(2, CFG["mels"] - 3, 2), g.uniform(2, CFG["mels"] - 3, 2)
    shift, stretch = rng.integers(-4, 5), rng.uniform(0.8, 1.2)
    t = np.clip((np.arange(CFG["frames"]) + shift) * stretch / CFG["frames"], 0, 1)
    mel = np.arange(CFG["mels"])[:, None]
    spec = np.zeros((CFG["mels"], CFG["frames"]))
    for a, b in zip(start, end):
        centre = a + (b - a) * t + rng.normal(0, 0.5)
        spec += np.exp(-0.5 * ((mel - centre[None, :]) / 1.2) ** 2)
    return np.log(spec + 0.05) + rng.normal(0, 0.6, spec.shape)


def corpus(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CFG["words"], n)
    x = np.stack([formant_track(int(w), rng) for w in y]).astype(np.float32)
    x = (x - x.mean((1, 2), keepdims=True)) / x.std((1, 2), keepdims=True)
    return torch.from_numpy(x), torch.from_numpy(y)


class KeywordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(CFG["mels"], 48, 5, stride=2, padding=2)
        self.mid = nn.Conv1d(48, 48, 5, stride=2, padding=2)
        self.norm1, self.norm2 = nn.BatchNorm1d(48), nn.BatchNorm1d(48)
        self.head = nn.Linear(96, CFG["words"])

    def forward(self, x):
        h = F.relu(self.norm1(self.front(x)))
        h = F.relu(self.norm2(self.mid(h)))
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], dim=1))


class AmpStepper:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=CFG["lr"], momentum=0.9, nesterov=True)
        self.scaler = torch.amp.GradScaler("cpu")
        self.before_clip = [self.scaler.unscale_] if ALT else []

    def __call__(self, x, y):
        self.opt.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.model(x)
        loss = F.cross_entropy(logits.float(), y)
        self.scaler.scale(loss).backward()
        for prepare in self.before_clip:
            prepare(self.opt)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), CFG["max_norm"])
        self.scaler.step(self.opt)
        self.scaler.update()
        return loss.item(), float(norm)


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hit = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return hit


def main():
    torch.manual_seed(CFG["seed"])
    x, y = corpus(2048, CFG["seed"])
    xv, yv = corpus(400, CFG["seed"] + 1)
    loader = DataLoader(TensorDataset(x, y), batch_size=CFG["batch"], shuffle=True, drop_last=True)
    model = KeywordNet()
    stepper = AmpStepper(model)
    step = 0
    for epoch in range(CFG["epochs"]):
        for xb, yb in loader:
            loss, norm = stepper(xb, yb)
            step += 1
            if step % 20 == 0 or step == 1:
                print(f"step {step} loss {loss:.4f} grad_norm {norm:.3g}")
        print(f"epoch {epoch} valid accuracy {accuracy(model, xv, yv):.3f}")
    print(f"final loss {loss:.4f} valid accuracy {accuracy(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
