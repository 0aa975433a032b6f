# expect: sick
# symptom: no error, the loss falls only a little, held-out frame accuracy stays near the majority rate
# axis: model
# cause: (batch, time, mel) is turned to (batch, mel, time) with view/reshape, not transpose: the values are mixed
# says: (view|reshap).{0,90}(transpos|permut|mix|scrambl|axes|layout|wrong)|(transpos|permut).{0,60}(view|resh)
# onset_step: 0
# fix: use transpose(1, 2) in place of view
# mended: the script applies that change if the environment has MENDED=1
"""Frame-wise phone labels from log-mel like features with a small temporal CNN."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
FRAMES, MELS, PHONES = 60, 24, 8


class PhoneClips(Dataset):
    """A clip is a run of phones, each with two formants; phone 0 is silence."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        formants = np.random.default_rng(99).uniform(2, MELS - 3, (PHONES, 2))
        mel = np.arange(MELS)
        self.clips = np.empty((n, FRAMES, MELS), np.float32)
        self.labels = np.zeros((n, FRAMES), np.int64)
        for i in range(n):
            clip = rng.normal(0, 0.45, (FRAMES, MELS))
            voice, t = rng.normal(0, 0.3), 0
            while t < FRAMES:
                dur, phone = int(rng.integers(5, 13)), int(rng.integers(0, PHONES))
                self.labels[i, t : t + dur] = phone
                for centre in formants[phone] + voice:
                    if phone:
                        clip[t : t + dur] += rng.uniform(1.0, 1.8) * np.exp(-0.5 * ((mel - centre) / 1.2) ** 2)
                t += dur
            self.clips[i] = clip

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        return torch.from_numpy(self.clips[i]), torch.from_numpy(self.labels[i])


class Block(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 5, padding=2 * dilation, dilation=dilation)
        self.norm = nn.BatchNorm1d(cout)
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + self.skip(x))


class PhoneNet(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.blocks = nn.Sequential(Block(MELS, width, 1), Block(width, width, 2), Block(width, width, 4))
        self.drop = nn.Dropout(0.1)
        self.out = nn.Conv1d(width, PHONES, 1)

    def forward(self, feats):
        b, t, m = feats.shape
        x = feats.transpose(1, 2) if MENDED else feats.view(b, m, t)
        return self.out(self.drop(self.blocks(x)))


@torch.no_grad()
def score(model, loader):
    model.eval()
    good = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    model.train()
    return good / (len(loader.dataset) * FRAMES)


def main():
    torch.manual_seed(7)
    train = DataLoader(PhoneClips(1600, 1), batch_size=32, shuffle=True)
    valid = DataLoader(PhoneClips(600, 2), batch_size=200)
    model = PhoneNet()
    epochs = 6
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=epochs * len(train))
    step = 0
    for epoch in range(epochs):
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} held-out frame accuracy {score(model, valid):.3f}")


if __name__ == "__main__":
    main()
