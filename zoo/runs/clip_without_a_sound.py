"""Spoken words from spectrograms that each sample scales by its own deviation.

Modelled on clips that are silent from their first to their last frame: their deviation is 0, and 0 / 0 is NaN. The data
set makes it, so the recorded batch holds it, and a trial makes the sample again: cause singular-operation. Mended: the
deviation has a floor.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)

WORDS, FRAMES, BANDS = 4, 20, 12
labels = torch.randint(0, WORDS, (6400,))
clips = torch.randn(len(labels), FRAMES, BANDS)
clips[torch.arange(len(labels)), :, labels * 3] += 1.5
clips[3000] = 0.0


class Clips(Dataset):
    def __len__(self):
        return len(labels)

    def __getitem__(self, index):
        clip = clips[index]
        deviation = clip.std().clamp(min=1e-4) if FIXED else clip.std()
        return (clip - clip.mean()) / deviation, labels[index]  # <- bites


model = nn.Sequential(nn.Flatten(), nn.Linear(FRAMES * BANDS, 32), nn.ReLU(), nn.Linear(32, WORDS))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step, (rows, targets) in enumerate(DataLoader(Clips(), batch_size=32), start=1):
    loss = nn.functional.cross_entropy(model(rows), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
