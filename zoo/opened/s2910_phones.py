# expect: sick
# symptom: after the warm-up the frame loss creeps ever more slowly and then freezes far above its usual value; no spike, no error, gradients look healthy
# axis: optimizer
# cause: The adaptive clipping threshold is a fraction of a running average that is fed with the norms left after clipping instead of the raw norms, so the threshold can only shrink, geometrically, and the SGD updates are clipped to almost nothing.
# says: (clip|threshold|limit).*(after (the )?(clip|scal)|post-?(clip|scal)|already[- ](clipped|scaled)|(clipped|scaled) (norm|grad)|own output|itself|feedback|fed (back|with)|ratchet|shrink|spiral|geometric|towards? zero|to (almost |nearly )?(zero|nothing))|(ratchet|feedback|shrink|self[- ]referen|post-?clip|already[- ]clipped|clipped (norm|grad)|after clipping).*(clip|threshold|average|limit)
# onset_step: 102
# fix: update the running average with the gradient norm before clipping
# mended: yes
"""Frame-wise phone classifier (bidirectional GRU) on synthetic formant tracks."""

import os
import sys
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

CFG = dict(
    phones=20,
    frames=60,
    bands=24,
    hidden=64,
    batch=24,
    steps=520,
    lr=0.5,
    momentum=0.9,
    free_steps=100,
    clip_ratio=0.9,
    clip_beta=0.9,
    seed=21,
)


class FormantCorpus:
    """Utterances as sequences of phones; every phone has three spectral peaks."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        inventory = np.random.default_rng(4)
        p = cfg["phones"]
        self.peaks = np.sort(inventory.uniform(1, cfg["bands"] - 2, (p, 3)), axis=1)
        self.trans = inventory.dirichlet(np.full(p, 0.25), p)
        self.length = inventory.uniform(4, 8, p)
        self.rng = np.random.default_rng(seed)

    def utterance(self):
        r, c = self.rng, self.cfg
        labels, cur = [], int(r.integers(c["phones"]))
        while len(labels) < c["frames"]:
            labels += [cur] * max(2, int(r.normal(self.length[cur], 1.2)))
            cur = int(r.choice(c["phones"], p=self.trans[cur]))
        y = np.array(labels[: c["frames"]])
        track = self.peaks[y] * r.normal(1.0, 0.04)
        for k in range(3):
            track[:, k] = np.convolve(np.pad(track[:, k], 1, mode="edge"), [0.25, 0.5, 0.25], "valid")
        band = np.arange(c["bands"])[None, None, :]
        spec = np.exp(-0.5 * ((band - track[:, :, None]) / 1.1) ** 2).sum(1)
        spec = spec + 0.35 * r.normal(size=spec.shape)
        return spec.astype(np.float32), y

    def batch(self, n):
        x, y = zip(*(self.utterance() for _ in range(n)))
        return torch.from_numpy(np.stack(x)), torch.from_numpy(np.stack(y))


class PhoneNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.front = nn.Sequential(nn.Linear(cfg["bands"], cfg["hidden"]), nn.LayerNorm(cfg["hidden"]), nn.GELU())
        self.rnn = nn.GRU(cfg["hidden"], cfg["hidden"], batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * cfg["hidden"], cfg["phones"])

    def forward(self, x):
        return self.out(self.rnn(self.front(x))[0])


class AdaptiveClip:
    """Scales the gradient down to a fraction of its typical norm."""

    def __init__(self, params, ratio, beta, free_steps):
        self.params = [p for p in params if p.requires_grad]
        self.ratio, self.beta, self.free_steps = ratio, beta, free_steps
        self.typical, self.calls = None, 0

    def total_norm(self):
        return torch.stack([p.grad.norm() for p in self.params]).norm().item()

    def __call__(self):
        self.calls += 1
        before = self.total_norm()
        if self.calls > self.free_steps:
            scale = min(1.0, self.ratio * self.typical / (before + 1e-12))
            for p in self.params:
                p.grad.mul_(scale)
        observed = before if MENDED else self.total_norm()
        self.typical = observed if self.typical is None else self.beta * self.typical + (1 - self.beta) * observed
        return before


@torch.no_grad()
def frame_error(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
    return loss.item(), (logits.argmax(-1) != y).float().mean().item()


def main(cfg):
    torch.manual_seed(cfg["seed"])
    train, dev = FormantCorpus(cfg, 100), FormantCorpus(cfg, 200)
    dev_x, dev_y = dev.batch(100)
    model = PhoneNet(cfg)
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"], momentum=cfg["momentum"])
    clip = AdaptiveClip(model.parameters(), cfg["clip_ratio"], cfg["clip_beta"], cfg["free_steps"])
    start = time.time()
    for step in range(1, cfg["steps"] + 1):
        for g in opt.param_groups:
            g["lr"] = cfg["lr"] * min(1.0, step / 300) * 0.3
        x, y = train.batch(cfg["batch"])
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        norm = clip()
        opt.step()
        if step % 20 == 0:
            print(f"{step:5d} loss {loss.item():.4f} gnorm {norm:.3f} ({time.time() - start:.0f}s)")
        if step % 100 == 0:
            l, e = frame_error(model, dev_x, dev_y)
            print(f"      dev loss {l:.4f} frame error {100 * e:.1f}%")
            sys.stdout.flush()


if __name__ == "__main__":
    main(CFG)
