# expect: sick
# fault: the images are stored height-width-channel and are viewed as channel-height-width instead of permuted, so pixels are scrambled
# onset_step: 1
# says: (?i)(view|reshape|permut|transpos|axes|channels|scrambl|layout)
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

torch.set_num_threads(1)
torch.manual_seed(3)
SIDE = 24


class Blobs(Dataset):
    """Coloured blobs on a noisy background, as uint8 arrays the way an image decoder gives them."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        yy, xx = np.mgrid[0:SIDE, 0:SIDE]
        self.pics = np.zeros((n, SIDE, SIDE, 3), dtype=np.uint8)
        self.kind = rng.integers(0, 6, size=n)
        for i, k in enumerate(self.kind):
            cx, cy = rng.uniform(6, 18, size=2)
            r = np.sqrt((xx - cx) ** 2 + (yy - cy) ** 2)
            shape = (r < 5) if k < 3 else ((r > 3) & (r < 5.5))
            img = rng.integers(0, 90, size=(SIDE, SIDE, 3))
            img[..., k % 3] += (shape * 120).astype(img.dtype)
            self.pics[i] = img.clip(0, 255)

    def __len__(self):
        return len(self.kind)

    def __getitem__(self, i):
        pic = torch.from_numpy(self.pics[i]).float().div(255)
        return pic, int(self.kind[i])


class Net(nn.Module):
    def __init__(self, width=16, classes=6):
        super().__init__()
        self.c1 = nn.Conv2d(3, width, 3, padding=1)
        self.c2 = nn.Conv2d(width, width * 2, 3, padding=1)
        self.bn = nn.BatchNorm2d(width * 2)
        self.fc = nn.Linear(width * 2, classes)

    def forward(self, pics):
        b, h, w, c = pics.shape
        x = pics.view(b, c, h, w)
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.bn(self.c2(x))), 2)
        return self.fc(x.mean(dim=(2, 3)))


def accuracy(net, loader):
    net.eval()
    good = total = 0
    with torch.no_grad():
        for pics, kind in loader:
            good += (net(pics).argmax(1) == kind).sum().item()
            total += len(kind)
    net.train()
    return good / total


def main():
    train = DataLoader(Blobs(1600, 0), batch_size=32, shuffle=True)
    held = DataLoader(Blobs(300, 1), batch_size=100)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    step = 0
    for epoch in range(5):
        for pics, kind in train:
            loss = F.cross_entropy(net(pics), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"step {step} loss {loss.item():.4f}")
    print("held-out accuracy", round(accuracy(net, held), 3))


if __name__ == "__main__":
    main()
