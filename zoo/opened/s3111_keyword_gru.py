# expect: sick
# symptom: the loss stops early at a high level and the accuracy of the keyword model remains poor
# axis: data
# cause: frame energy is computed on int16 samples, so the squares overflow and wrap before they are summed
# says: overflow|wrap|int16|16.?bit|integer.*(range|square|product)
# onset_step: 0
# fix: convert the samples to float before squaring
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
RATE, FRAME, HOP = 4000, 100, 50
STEPS, BATCH = 320, 32
CONTOURS = [
    [1, 1, 3, 6, 3, 1],
    [6, 3, 1, 1, 3, 6],
    [1, 2, 3, 4, 5, 6],
    [6, 5, 4, 3, 2, 1],
    [1, 6, 1, 6, 1, 6],
]
PITCHES = [220.0, 420.0]


def utterance(label, rng):
    """One second of a voiced sound: a pitch, two overtones and a loudness contour per keyword."""
    contour, pitch = CONTOURS[label % len(CONTOURS)], PITCHES[label // len(CONTOURS)]
    n = RATE
    t = np.arange(n) / RATE
    f0 = pitch * (1 + rng.normal(0, 0.05))
    shift = rng.uniform(-0.06, 0.06)
    env = np.interp(t + shift, np.linspace(0, 1, 6), contour)
    wave = np.sin(2 * np.pi * f0 * t + rng.uniform(0, 6.28))
    wave += 0.4 * np.sin(4 * np.pi * f0 * t + rng.uniform(0, 6.28)) + 0.1 * rng.normal(size=n)
    gain = rng.uniform(900, 1500)
    return np.clip(gain * env * wave, -32768, 32767).astype(np.int16)


class KeywordSet:
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.labels = torch.tensor(rng.integers(0, len(CONTOURS) * len(PITCHES), count))
        self.pcm = torch.from_numpy(np.stack([utterance(int(l), rng) for l in self.labels]))

    def __len__(self):
        return len(self.labels)


def features(pcm):
    """Log energy and zero-crossing rate of each frame, [batch, frames, 2]."""
    if MENDED:
        pcm = pcm.float()
    frames = pcm.unfold(1, FRAME, HOP)
    energy = (frames * frames).sum(-1).float() / FRAME
    log_energy = energy.clamp_min(1.0).log()
    signs = frames >= 0
    crossings = (signs[..., 1:] != signs[..., :-1]).float().mean(-1)
    log_energy = log_energy - log_energy.mean(1, keepdim=True)
    return torch.stack([log_energy / 1.5, (crossings - 0.15) * 10], -1)


class KeywordNet(nn.Module):
    def __init__(self, classes, hidden=48):
        super().__init__()
        self.front = nn.Conv1d(2, 24, 5, stride=2, padding=2)
        self.rnn = nn.GRU(24, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        z = F.gelu(self.front(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(z)
        return self.out(h.mean(1))


@torch.no_grad()
def accuracy(model, data):
    model.eval()
    right = (model(features(data.pcm)).argmax(-1) == data.labels).float().mean().item()
    model.train()
    return right


def main():
    torch.manual_seed(6)
    train, test = KeywordSet(3000, 1), KeywordSet(500, 2)
    model = KeywordNet(len(CONTOURS) * len(PITCHES))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=STEPS)
    gen = torch.Generator().manual_seed(3)
    order, at = torch.randperm(len(train), generator=gen), 0
    for step in range(STEPS):
        if at + BATCH > len(order):
            order, at = torch.randperm(len(train), generator=gen), 0
        idx = order[at : at + BATCH]
        at += BATCH
        loss = F.cross_entropy(model(features(train.pcm[idx])), train.labels[idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step % 80 == 79:
            print(f"step {step:4d} test accuracy {accuracy(model, test):.3f}")
    print(f"final loss {loss.item():.4f} test accuracy {accuracy(model, test):.3f}")


if __name__ == "__main__":
    main()
