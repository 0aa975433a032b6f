# expect: healthy
# axis: none
# symptom: the picture is cropped at a random place and flipped at random, and the targets are passed through unchanged
# cause: right on purpose: the targets are the kind of mark and its width and height, which neither a shift nor a mirror changes
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

FULL, SIDE = 44, 32
MARGIN = (FULL - SIDE) // 2


def frame(g):
    """A stamp mark on a noisy ground: picture, kind (full, hollow, cross) and its (width, height)."""
    yy, xx = np.mgrid[0:FULL, 0:FULL]
    cx, cy = g.uniform(MARGIN + 11, FULL - MARGIN - 11, 2)
    w, h = g.uniform(6, 14, 2)
    kind = int(g.integers(3))
    u, v = np.abs(xx - cx) / (w / 2), np.abs(yy - cy) / (h / 2)
    inside = (u <= 1) & (v <= 1)
    ink = [inside, inside & ((u > 0.55) | (v > 0.55)), inside & ((u < 0.35) | (v < 0.35))][kind]
    pic = ink + 0.2 * g.normal(size=(FULL, FULL))
    return pic.astype(np.float32), kind, np.array([w, h], dtype=np.float32)


class Stamps(Dataset):
    def __init__(self, n, seed, play=0):
        g = np.random.default_rng(seed)
        self.items = [frame(g) for _ in range(n)]
        self.play = play
        self.g = np.random.default_rng(seed + 1)

    def __len__(self):
        return len(self.items)

    def vary(self, pic):
        ox, oy = MARGIN + self.g.integers(-self.play, self.play + 1, size=2)
        pic = pic[oy : oy + SIDE, ox : ox + SIDE]
        if self.play and self.g.random() < 0.5:
            pic = pic[:, ::-1]
        if self.play and self.g.random() < 0.5:
            pic = pic[::-1]
        return pic

    def __getitem__(self, i):
        pic, kind, size = self.items[i]
        pic = self.vary(pic)
        return torch.from_numpy(np.ascontiguousarray(pic))[None], kind, torch.from_numpy(size) / SIDE


class Clerk(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 64, 96),
            nn.ReLU(),
        )
        self.kind = nn.Linear(96, 3)
        self.size = nn.Linear(96, 2)

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.size(h)


def main():
    torch.manual_seed(81)
    train = DataLoader(Stamps(1280, 81, play=3), batch_size=32, shuffle=True)
    held = DataLoader(Stamps(256, 91), batch_size=256)
    net = Clerk()
    opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
    for epoch in range(12):
        total = []
        for pic, kind, size in train:
            k, s = net(pic)
            loss = nn.functional.cross_entropy(k, kind) + 100 * nn.functional.mse_loss(s, size)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total.append(loss.item())
        with torch.no_grad():
            pic, kind, size = next(iter(held))
            k, s = net(pic)
            right = (k.argmax(1) == kind).float().mean().item()
            off = (s - size).abs().mean().item() * SIDE
        print(f"epoch {epoch:2d}  loss {np.mean(total):.4f}  held out: right {right:.3f}  off {off:.2f} px", flush=True)


if __name__ == "__main__":
    main()
