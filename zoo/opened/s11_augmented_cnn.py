# expect: sick
# symptom: torch, numpy and random are seeded, yet two runs disagree from step 1
# axis: harness
# cause: the augmentation in the loader workers draws from a numpy generator without a seed
# says: (?i)(seed|worker.*(random|generator|rng)|generator.*worker)
# onset_step: 1
# fix: seed the workers' generator from the sample index and a fixed seed
# mended: MENDED=1 python s11_augmented_cnn.py
import os
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEED = 77
FIXED_NOISE = os.environ.get("MENDED") == "1"


class Bars(Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(SEED)
        self.labels = rng.integers(0, 4, n)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        rng = np.random.default_rng((SEED, i) if FIXED_NOISE else None)
        img = rng.normal(0, 1.0, (1, 16, 16)).astype(np.float32)
        k, at = int(self.labels[i]), int(rng.integers(2, 13))
        if k == 0:
            img[0, at] += 2
        elif k == 1:
            img[0, :, at] += 2
        elif k == 2:
            img[0] += 2 * np.eye(16, dtype=np.float32)
        return torch.from_numpy(img), k


def main():
    torch.set_num_threads(1)
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 4),
    )
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    loader = DataLoader(Bars(32 * 150), batch_size=32, shuffle=True, num_workers=2)
    for step, (img, lab) in enumerate(loader, 1):
        loss = nn.functional.cross_entropy(net(img), lab)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < 4 or step % 25 == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
