# expect: sick
# symptom: the loss falls for some dozens of steps, then it is NaN and stays NaN
# axis: data
# cause: per-clip normalisation divides by the standard deviation, which is 0 for a digitally silent clip
# says: (?=.*(std|devia|varian|normali|standardi|divi|0/0))(?=.*(silen|constant|zero|flat|muted|\b0\b))
# onset_step: 59
# fix: clamp the standard deviation of a clip from below before dividing
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(5)
MENDED = os.environ.get("MENDED") == "1"
STD_FLOOR = 1e-5 if MENDED else 0.0

WORDS = ["up", "down", "left", "right", "stop", "background"]
FRAMES, MELS = 40, 24


def synth_clip(label, rng):
    """Log-mel like picture of a spoken word: two moving formants above a noise floor."""
    t = np.linspace(0, 1, FRAMES)[:, None]
    f = np.arange(MELS)[None, :]
    out = 0.35 * rng.standard_normal((FRAMES, MELS))
    if WORDS[label] != "background":
        shift = rng.uniform(-2, 2)
        start, slope = [(4, 12), (16, -12), (10, 0), (4, 4), (18, -5)][label]
        c1 = start + slope * t + shift
        c2 = c1 + 4 + 2 * np.sin(3 * t * (label + 1))
        env = np.exp(-((t - rng.uniform(0.4, 0.6)) ** 2) / 0.08)
        out += 1.6 * env * (np.exp(-((f - c1) ** 2) / 2) + np.exp(-((f - c2) ** 2) / 2))
    gain = rng.uniform(0.5, 3.0)
    return (gain * out).astype(np.float32)


class ClipSet(Dataset):
    def __init__(self, n, seed, muted=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(WORDS), n)
        self.clips = [synth_clip(y, rng) for y in self.labels]
        bg = np.flatnonzero(self.labels == WORDS.index("background"))
        for i in rng.choice(bg, muted, replace=False):
            self.clips[i] = np.zeros((FRAMES, MELS), np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        x = torch.from_numpy(self.clips[i])
        x = (x - x.mean()) / x.std().clamp_min(STD_FLOOR)
        return x, int(self.labels[i])


class KeywordNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2, stride=2)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, x):
        h = F.relu(self.conv1(x.transpose(1, 2)))
        h = F.relu(self.conv2(h))
        _, last = self.gru(h.transpose(1, 2))
        return self.head(last[0])


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = tot = 0
    for x, y in loader:
        hit += (model(x).argmax(1) == y).sum().item()
        tot += len(y)
    model.train()
    return hit / tot


def main():
    train = DataLoader(ClipSet(1600, 1, muted=2), batch_size=16, shuffle=True)
    test = DataLoader(ClipSet(400, 2), batch_size=100)
    model = KeywordNet()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = 0
    for epoch in range(3):
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} test accuracy {accuracy(model, test):.3f}")
    print(f"final step {step} loss {loss.item():.4f} accuracy {accuracy(model, test):.3f}")


if __name__ == "__main__":
    main()
