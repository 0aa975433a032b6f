# expect: sick
# symptom: the loss is enormous at the first step and blows up to NaN within a few steps
# axis: data
# cause: images stay in the 0..255 range and are normalised with mean/std meant for 0..1 (division by 255 missing)
# says: 255|(pixel|image|input)s?\b.*(scal|rang|normali|too large|huge)
# onset_step: 0
# fix: divide the uint8 images by 255 before the mean/std normalisation
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"

SIZE = 32
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def render_board(rng):
    """One camera picture of a board with a bright fiducial; returns HWC uint8 and (x, y) in 0..1."""
    base = rng.integers(60, 120, size=3)
    img = np.ones((SIZE, SIZE, 3)) * base + rng.normal(0, 8, (SIZE, SIZE, 3))
    cx, cy = rng.uniform(5, SIZE - 5, size=2)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    spot = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * 2.2**2))
    img += spot[..., None] * np.array([110, 120, 60])
    for _ in range(2):
        r = rng.integers(0, SIZE)
        img[r, :, :] -= 20
    return np.clip(img, 0, 255).astype(np.uint8), np.array([cx, cy], dtype=np.float32) / SIZE


class BoardDataset(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        items = [render_board(rng) for _ in range(n)]
        self.images = np.stack([i for i, _ in items])
        self.points = np.stack([p for _, p in items])
        self.scale = 255.0 if MENDED else 1.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = torch.from_numpy(self.images[i]).permute(2, 0, 1).float() / self.scale
        return (img - MEAN) / STD, torch.from_numpy(self.points[i])


class Locator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(width, width * 2, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(width * 2, width * 2, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(width * 2 * (SIZE // 4) ** 2, 64), nn.ReLU(), nn.Linear(64, 2)
        )

    def forward(self, x):
        return self.head(self.features(x))


@torch.no_grad()
def pixel_error(model, loader):
    model.eval()
    errs = [(model(x) - y).mul(SIZE).norm(dim=1) for x, y in loader]
    model.train()
    return torch.cat(errs).mean().item()


def main():
    train = DataLoader(BoardDataset(1600, 0), batch_size=32, shuffle=True)
    val = DataLoader(BoardDataset(300, 1), batch_size=100)
    model = Locator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    criterion = nn.MSELoss()
    step = 0
    for epoch in range(6):
        for x, y in train:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.5f}")
            step += 1
        print(f"epoch {epoch} val pixel error {pixel_error(model, val):.3f}")
    print(f"final loss {loss.item():.5f} val_px {pixel_error(model, val):.3f}")


if __name__ == "__main__":
    main()
